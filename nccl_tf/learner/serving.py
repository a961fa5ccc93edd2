"""A learner as a plain Keras model that answers as `predict` does."""

import pathlib
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from nccl_tf.errors import UserError

if TYPE_CHECKING:
    from nccl_tf.learner.learner import Learner


def serving_model(learner: "Learner") -> keras.Model:
    """A plain model with the outputs of `predict`; `Learner.serving_model` is the public form.

    Args:
        learner: The learner.

    Raises:
        UserError: As for `Learner.serving_model`.
    """
    if reason := learner.why_not("serving_model"):
        raise UserError(f"{type(learner).__name__} makes no serving model: {reason}")
    with learner.serving_weights():
        network = copy_network(learner.network)
    has_heads = learner.heads is not None
    inputs = _inputs_like(network, "inputs" if has_heads else None)
    received, task = inputs, None
    if has_heads:
        task = keras.Input((), dtype="int32", name="task")
        received = {**_by_name(inputs), "task": task}
    outputs = learner.serving_outputs(network, inputs, task)
    return keras.Model(received, outputs, name=f"{network.name}_serving")


def copy_network(network: keras.Model) -> keras.Model:
    """A copy of a network with its weights, vocabularies and the statistics of its layers."""
    kinds = {type(layer) for layer in network._flatten_layers()}
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


def masked(learner: "Learner", logits: Any, task: Any) -> Any:
    """Symbolic logits [n, classes] with the current mask, as `Learner.masked_for_test`.

    Args:
        learner: The learner.
        logits: Before any mask.
        task: int32 [n], symbolic; None for a single head.
    """
    if logits.dtype not in ("float32", "float64"):
        logits = keras.ops.cast(logits, "float32")
    value = learner.example_loss.masked_value
    if value is None:
        return logits
    if learner.heads is not None and task is not None:
        keep = rows_of(learner.heads.table.astype("float32"), task) > 0.5
    else:
        seen = learner.seen_classes.numpy()
        if seen.all() or not seen.any():
            return logits
        keep = keras.ops.convert_to_tensor(seen)
    return keras.ops.where(keep, logits, value)
