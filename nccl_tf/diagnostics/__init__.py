"""Forgetting measured as the theory describes it, while a learner trains."""
