"""Methods, memories and streams from outside of the package: plugins, and rows of the tables."""
