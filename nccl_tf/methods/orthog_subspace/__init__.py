"""ORTHOG-SUBSPACE (Chaudhry et al., 2020)."""
