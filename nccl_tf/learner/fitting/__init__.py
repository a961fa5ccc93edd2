"""What `fit` and `evaluate` are given, what they refuse, and the loop over it in the graph."""
