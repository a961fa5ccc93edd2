"""Methods over one pass and several, beside training on everything."""
