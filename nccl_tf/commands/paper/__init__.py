"""The paper, and those that it is compared with: their numbers, and our runs beside them."""
