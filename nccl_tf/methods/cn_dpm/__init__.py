"""CN-DPM (Lee et al., 2020)."""
