"""LPR (Yoo, Liu, Wood and Pleiss, 2024)."""
