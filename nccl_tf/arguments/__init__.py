"""Arguments that users set: named values with ranges, and constructors that show them."""
