"""mini-ImageNet from a user's files, in any of three layouts, as a TFDS builder."""
