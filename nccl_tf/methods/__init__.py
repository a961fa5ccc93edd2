"""Continual-learning methods: one file each, and the registry that names them."""
