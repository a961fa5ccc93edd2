"""Loading learners that were saved: Keras finds a class only when its module has been imported."""

import importlib
import pathlib
from typing import Any

from nccl_tf.methods.registry import METHODS, get_method

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


_STABLE = {"StableAGEM": "agem", "StableER": "er_ring", "StableSGD": "finetune"}
"""Classes that files saved by earlier versions name; their `rate_decay` is an argument now."""


def register_classes() -> None:
    """Import every module with a class that a saved learner, memory or network can name."""
    import keras

    for module in (*_PARTS, *(row.learner.partition(":")[0] for row in METHODS.values())):
        importlib.import_module(module)
    names = keras.saving.get_custom_objects()
    for name, method in _STABLE.items():
        names.setdefault(f"nccl_tf>{name}", get_method(method).learner_class())


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
