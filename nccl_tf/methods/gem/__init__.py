"""GEM (Lopez-Paz and Ranzato, 2017)."""
