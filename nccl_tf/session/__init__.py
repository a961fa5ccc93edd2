"""A whole stream in one call, in Python: `learn` and its result."""
