"""Loading learners that were saved: Keras finds a class only when its module has been imported."""

import importlib
import pathlib
from typing import Any

from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.methods.registry import METHODS, get_method

_NETWORKS = (
    "nccl_tf.networks.layers",
    "nccl_tf.networks.experts.layer",
)


_STABLE = {"StableAGEM": "agem", "StableER": "er_ring", "StableSGD": "finetune"}
"""Classes that files saved by earlier versions name; their `rate_decay` is an argument now."""


def register_classes() -> None:
    """Import every module with a class that a saved learner, memory or network can name."""
    import keras

    for module in _NETWORKS:
        importlib.import_module(module)
    for kind in MEMORIES.values():
        kind.memory_class()
    for method in METHODS.values():
        method.learner_class()
    names = keras.saving.get_custom_objects()
    for name, method_name in _STABLE.items():
        names.setdefault(f"nccl_tf>{name}", get_method(method_name).learner_class())


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
