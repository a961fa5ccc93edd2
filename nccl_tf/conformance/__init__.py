"""Checks of what every learner and every memory must do, on a class of a user's own."""
