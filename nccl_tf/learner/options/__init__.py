"""Options of a learner, a file each: objects beside it that see its steps and tasks."""
