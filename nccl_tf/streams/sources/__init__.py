"""Where examples come from: images by name, uint8 [n, height, width, channels]."""
