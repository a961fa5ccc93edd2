"""iCaRL (Rebuffi et al., 2017)."""
