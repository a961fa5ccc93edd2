"""What every learner and every memory must do, as checks on a class of a user's own."""
