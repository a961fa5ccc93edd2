"""What a run leaves on disk: its settings and their hash, the record, checkpoints, files."""
