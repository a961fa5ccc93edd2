"""One seed of an experiment: train, evaluate, record, resume."""
