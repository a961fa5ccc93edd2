"""Replay memories: fixed-shape variables that are written and read in place."""
