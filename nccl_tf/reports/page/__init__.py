"""The interactive page of all runs: what it holds, how it is written, and serving it live."""
