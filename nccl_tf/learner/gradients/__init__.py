"""The two gradients of a step: on tapes, or in one pass over the rows of a dense network."""
