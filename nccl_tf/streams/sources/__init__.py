"""Sources of examples: image data sets by name, uint8 [n, height, width, channels]."""
