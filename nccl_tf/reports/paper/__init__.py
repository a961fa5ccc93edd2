"""The paper's published numbers, compared with the runs."""
