"""A learner as a plain Keras model that answers as `predict` does."""

import pathlib
from tempfile import TemporaryDirectory
from typing import Any

import keras
import numpy as np

from nccl_tf.keras_private import layers_of


def inputs_of(network: keras.Model, has_heads: bool) -> tuple[Any, Any, Any]:
    """Symbolic inputs of a model around a network.

    Args:
        network: The network.
        has_heads: Whether the model receives the task of each example.

    Returns:
        Inputs as the network takes them; what the model receives; and the tasks, int32 [n], or
        None.
    """
    inputs = _inputs_like(network, "inputs" if has_heads else None)
    if not has_heads:
        return inputs, inputs, None
    task = keras.Input((), dtype="int32", name="task")
    return inputs, {**_by_name(inputs), "task": task}, task


def copy_network(network: keras.Model) -> keras.Model:
    """A copy of a network with its weights, vocabularies and the statistics of its layers."""
    kinds = {type(layer) for layer in layers_of(network, include_self=True)}
    own = {name: kind for kind in kinds for name in (kind.__name__, _registered_name(kind))}
    with TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "network.keras"
        network.save(path)
        # What was written here a moment ago may hold a lambda of the user's.
        return keras.models.load_model(path, own, compile=False, safe_mode=False)


def rows_of(table: np.ndarray, task: Any) -> Any:
    """The rows of a constant table [tasks, width] for symbolic task ids [n]: [n, width]."""
    return keras.ops.take(keras.ops.convert_to_tensor(table), task, axis=0)


def _registered_name(kind: type) -> str:
    return keras.saving.get_registered_name(kind)


def _inputs_like(network: keras.Model, name: str | None) -> Any:
    """Symbolic inputs in the form of a network's; `name` is that of a single one, None for its."""
    received = network.inputs if isinstance(network, keras.Sequential) else network.input
    if isinstance(received, (list, tuple)) and len(received) == 1:
        (received,) = received

    def like(tensor: Any) -> Any:
        alone = name if len(network.inputs) == 1 and tensor is received else None
        return keras.Input(tensor.shape[1:], dtype=tensor.dtype, name=alone or tensor.name)

    return keras.tree.map_structure(like, received)


def _by_name(inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, dict):
        return inputs
    parts = keras.tree.flatten(inputs)
    return {"inputs": inputs} if len(parts) == 1 else {part.name: part for part in parts}


def masked(
    logits: Any, task: Any, table: np.ndarray | None, seen: np.ndarray, value: float | None
) -> Any:
    """Symbolic logits [n, classes] with a mask of constants.

    Args:
        logits: Before any mask.
        task: int32 [n], symbolic, where there is a table.
        table: bool [tasks, classes], the classes of each task; None for a single head.
        seen: bool [classes], those that a single head has seen.
        value: Takes the place of a masked logit; None for no mask.
    """
    if logits.dtype not in ("float32", "float64"):
        logits = keras.ops.cast(logits, "float32")
    if value is None:
        return logits
    if table is not None:
        keep = rows_of(table.astype("float32"), task) > 0.5
    else:
        if seen.all() or not seen.any():
            return logits
        keep = keras.ops.convert_to_tensor(seen)
    return keras.ops.where(keep, logits, value)
