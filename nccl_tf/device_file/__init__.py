"""A learner in one LiteRT file, which trains, remembers and predicts on a device."""
