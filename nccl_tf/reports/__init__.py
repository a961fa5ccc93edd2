"""What is made of records: pictures and tables."""
