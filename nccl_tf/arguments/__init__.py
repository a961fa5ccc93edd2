"""What users may set: named values with their ranges, and constructors that show them."""
