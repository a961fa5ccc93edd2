"""What there is to say of each method beside its class: its row, without TensorFlow.

A file for each module of learners; `methods/registry.py` takes every `Method` that a file here has.
"""
