"""What methods that learn by statistics of frozen features refuse, and why."""

WITHOUT_STEPS = {
    "stream_mask": "takes a class by statistics of its features, and learns from no softmax",
    "average_weights": "learns without a gradient step, and leaves its weights alone",
    "diagnostics": "learns without a gradient step, and leaves its weights alone",
    "rate_decay": "learns without a gradient step, and has no use for a rate",
    "optimizer": "learns without a gradient step, and has no use for an optimizer",
    "schedule": "learns without a gradient step, and has no use for a rate",
    "augment": "takes the features of an image as it is",
}
