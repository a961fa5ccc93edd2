"""Loading learners that were saved: Keras finds a class only when its module has been imported."""

import importlib
import pathlib
from typing import Any

from nccl_tf.methods.registry import METHODS

_PARTS = (
    "nccl_tf.memories.balanced",
    "nccl_tf.memories.edited_reservoir",
    "nccl_tf.memories.exemplars",
    "nccl_tf.memories.reservoir",
    "nccl_tf.memories.ring",
    "nccl_tf.memories.scored",
    "nccl_tf.memories.short_term",
    "nccl_tf.networks.layers",
    "nccl_tf.networks.experts.layer",
    "nccl_tf.networks.layers",
)


def register_classes() -> None:
    """Import every module with a class that a saved learner, memory or network can name."""
    for module in (*_PARTS, *(row.learner.partition(":")[0] for row in METHODS.values())):
        importlib.import_module(module)


def load_model(path: str | pathlib.Path) -> Any:
    """A learner saved with `learner.save`, ready to go on: `keras.models.load_model` in safe mode.

    Args:
        path: The .keras file.

    Returns:
        The learner, with its memory, its random draws and its optimizer's state.

    Raises:
        ValueError: The file does not exist or is not a saved Keras model (from Keras).
    """
    register_classes()
    import keras

    return keras.models.load_model(path, safe_mode=True)
