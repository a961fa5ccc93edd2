"""GDumb (Prabhu et al., 2020)."""
