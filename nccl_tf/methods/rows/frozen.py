"""What the rows of methods that learn by statistics of frozen features share."""

from nccl_tf.arguments.choices import STORES

WITHOUT_STEPS = {
    "stream_mask": "takes a class by statistics of its features, and learns from no softmax",
    "alignment": "takes a class by statistics of its features, and learns from no softmax",
    "rates": "learns without a gradient step, and has no use for a rate",
    "average_weights": "learns without a gradient step, and leaves its weights alone",
    "diagnostics": "learns without a gradient step, and leaves its weights alone",
    "rate_decay": "learns without a gradient step, and has no use for a rate",
    "optimizer": "learns without a gradient step, and has no use for an optimizer",
    "schedule": "learns without a gradient step, and has no use for a rate",
    "augment": "takes the features of an image as it is",
}
"""What they refuse, and why."""

COUNTS_ONCE = {"stores": STORES[0]}
"""They store nothing, and have the choice all the same: whether a further pass counts."""
