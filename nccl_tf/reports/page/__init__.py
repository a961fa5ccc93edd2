"""The page of all runs: one HTML file, made by plotly and itables, that needs no network."""
