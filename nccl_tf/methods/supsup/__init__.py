"""SupSup (Wortsman et al., 2020)."""
