"""Replay methods under one protocol."""
