"""A user's own mini-ImageNet files, in any of three layouts, as a TFDS builder."""
