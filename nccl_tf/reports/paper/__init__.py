"""The paper's published numbers, and what the runs say of them."""
