"""Pictures and tables made from records."""
