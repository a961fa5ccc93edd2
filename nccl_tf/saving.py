"""Loading learners that were saved: Keras finds a class only when its module has been imported."""

import importlib
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.methods.registry import METHODS
from nccl_tf.regular_files import open_regular


def register_classes() -> None:
    """Import every module with a class that a saved learner, memory or network can name."""
    importlib.import_module("nccl_tf.networks.layers")
    importlib.import_module("nccl_tf.learner.task_schedule")
    for kind in MEMORIES.values():
        kind.memory_class()
    for method in METHODS.values():
        method.learner_class()


def load_model(path: str | pathlib.Path, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """A learner saved with `learner.save`, ready to go on: `keras.models.load_model` in safe mode.

    Args:
        path: The .keras file.
        custom_objects: Classes of one's own by name, as for `keras.models.load_model`; None for
            those that `keras.saving.register_keras_serializable` knows.

    Returns:
        The learner, with its memory, its random draws and its optimizer's state.

    Raises:
        UserError: The file cannot be read, is a pipe or a device, or of another format.
        ValueError: It holds code, or is not a saved Keras model (from Keras).
    """
    # Keras waits for a pipe, and reads other formats, which can hold code.
    try:
        with open_regular(path) as file:
            is_zip = zipfile.is_zipfile(file)
    except OSError as error:
        raise UserError(
            f"cannot read the model {path} ({error.strerror}): expected a .keras file that "
            "learner.save has written"
        ) from error
    if not is_zip:
        raise UserError(f"{path} is no .keras file: save the learner with learner.save again")
    register_classes()
    import keras

    objects = None if custom_objects is None else dict(custom_objects)
    return keras.models.load_model(path, objects, safe_mode=True)
