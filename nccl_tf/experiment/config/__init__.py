"""From flags to settings: every default and every check."""
