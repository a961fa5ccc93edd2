"""The files of a run: settings and their hash, record, checkpoints."""
