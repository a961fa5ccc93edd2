"""The commands of `run.py`: a module each, with a function `run` from flag values to exit code."""
