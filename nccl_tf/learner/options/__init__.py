"""Options of every learner, whatever its method: what composes with all of them."""
