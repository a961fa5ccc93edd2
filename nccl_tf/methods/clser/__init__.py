"""CLS-ER (Arani, Sarfraz and Zonooz, 2022)."""
