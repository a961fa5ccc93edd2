"""One experiment: settings, the run of a seed, and the record it leaves."""
