"""Pictures of runs: a module each."""
