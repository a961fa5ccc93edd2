"""Data as a network prepares them that keeps a preprocessor, such as a task of KerasHub."""

import copy
import operator
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.errors import UserError
from nccl_tf.learner.data import FitData
from nccl_tf.user_data import form_of

_ROWS = 1000
"""Examples that are prepared at once."""

_TRACED: "weakref.WeakKeyDictionary[keras.Model, tuple[list[Any], Any]]"
_TRACED = weakref.WeakKeyDictionary()
"""Of a network, what its preprocessor was made of and `prepared_batch` traced with that."""


def prepares(network: Any) -> bool:
    """Whether a network is a task of KerasHub with a preprocessor, which its `fit` applies."""
    has_one = getattr(network, "preprocessor", None) is not None
    return has_one and hasattr(network, "preprocess_samples")


def prepared(
    network: keras.Model, x: Any, y: Any = None, sample_weight: Any = None
) -> tuple[Any, Any, Any]:
    """The data of `fit` or `predict` as the network takes them, its preprocessor applied.

    Inputs by the names of the network's own, such as rows of tokens, are taken to be prepared.

    Args:
        network: Of a learner; of one without a preprocessor the data stay as they are.
        x: Raw inputs: a list, an array or a tensor, {"inputs": inputs, "task": task ids}, or a data
            set of batches.
        y: Labels of arrays; None where the preprocessor makes them.
        sample_weight: Weights of arrays.

    Returns:
        Inputs, labels and weights; a data set keeps all three.

    Raises:
        UserError: The data are a generator or a `PyDataset`.
    """
    if not prepares(network):
        return x, y, sample_weight
    if isinstance(x, tf.data.Dataset):
        if _is_prepared(network, x.element_spec):
            return x, y, sample_weight
        return x.map(_traced(network)), y, sample_weight
    inputs, tasks = split_inputs(x)
    if _is_prepared(network, inputs):
        return x, y, sample_weight
    if isinstance(x, keras.utils.PyDataset) or not hasattr(inputs, "__len__"):
        raise UserError(
            f"received a {type(x).__name__} for a network that keeps a preprocessor: expected "
            "arrays, lists of texts, or a tf.data.Dataset; or set network.preprocessor = None "
            "and prepare what it delivers"
        )
    if isinstance(inputs, list):
        inputs = np.asarray(inputs)
    given = keras.utils.pack_x_y_sample_weight(inputs, y, sample_weight)
    parts = [keras.utils.unpack_x_y_sample_weight(part) for part in _prepared_rows(network, given)]
    x, y, sample_weight = (_joined(column) for column in zip(*parts, strict=True))
    return _named(x, tasks), y, sample_weight


def _prepared_rows(network: keras.Model, given: Any) -> Iterator[Any]:
    """Arrays `x` or `(x, y, sample_weight)`, prepared on the processor; any number is one graph."""
    with tf.device("CPU:0"):  # as in a data set, on which words are looked up
        columns = tf.nest.map_structure(
            tf.convert_to_tensor, given if isinstance(given, tuple) else (given,)
        )
        specs = tf.nest.map_structure(
            lambda column: tf.TensorSpec([None, *column.shape[1:]], column.dtype), columns
        )
        made = _traced(network).get_concrete_function(*specs)
        for start in range(0, len(tf.nest.flatten(columns)[0]), _ROWS):
            rows = slice(start, start + _ROWS)
            part = made(*tf.nest.map_structure(operator.itemgetter(rows), columns))
            yield tf.nest.map_structure(lambda column: column.numpy(), part)


def _joined(parts: Sequence[Any]) -> Any:
    if parts[0] is None:
        return None
    return tf.nest.map_structure(lambda *rows: np.concatenate(rows), *parts)


def prepared_data(network: keras.Model, data: FitData) -> FitData:
    """The data of a verb, as `prepared`; the batches of a task one by one, as they come."""
    if not prepares(network):
        return data
    given = data.x if data.indexed is None else data.indexed.dataset(changes=True)
    x, y, weights = prepared(network, given, *((data.y, data.weights) if given is data.x else ()))
    if x is given:
        return data
    made = copy.copy(data)
    made.x, made.y, made.weights, made.form, made.indexed = x, y, weights, form_of(x), None
    return made


def prepared_batch(network: keras.Model, data: Any) -> Any:
    """As `prepared`, of one batch `(x, y)`, `(x, y, sample_weight)` or `(x,)`; graph code too."""
    if not prepares(network) or _is_prepared(network, data):
        return data
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    inputs, tasks = split_inputs(x)
    x, y, sample_weight = _apply(network, inputs, y, sample_weight)
    return keras.utils.pack_x_y_sample_weight(_named(x, tasks), y, sample_weight)


def _traced(network: Any) -> Any:
    """`prepared_batch` as a function of a batch's parts that is traced once for batches of a form.

    `Dataset.map` would trace it in every call, which takes a tokenizer seconds. What is set later
    in the preprocessor or in a layer of it, such as a length or a vocabulary, is another object
    there, and the function is traced anew.
    """
    parts = _parts(network.preprocessor)
    known, traced = _TRACED.get(network, ([], None))
    same = len(known) == len(parts) and all(map(operator.is_, known, parts))
    if traced is None or not same:
        held = weakref.ref(network)
        traced = tf.function(lambda *parts: prepared_batch(held(), parts))
        _TRACED[network] = parts, traced
    return traced


def _parts(preprocessor: Any) -> list[Any]:
    """A preprocessor and what it, and each layer in it, holds."""
    parts, layers = {id(preprocessor): preprocessor}, [preprocessor]
    while layers:
        held = {id(part): part for part in vars(layers.pop()).values() if id(part) not in parts}
        layers += [part for part in held.values() if isinstance(part, keras.layers.Layer)]
        parts |= held
    return list(parts.values())


def _apply(network: Any, x: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    made = network.preprocess_samples(x, y, sample_weight)
    x, y, weights = keras.utils.unpack_x_y_sample_weight(made)
    if weights is not None and sample_weight is not None and len(weights.shape) > 1:
        # Of places, made by the preprocessor, for examples that weigh something themselves.
        given = tf.cast(sample_weight, tf.float32)
        weights = tf.cast(weights, tf.float32) * tf.reshape(given, [-1, 1])
    return x, y, weights


def _is_prepared(network: keras.Model, data: Any) -> bool:
    """Whether inputs, or the inputs of a batch, have the names of the network's own."""
    x = data[0] if isinstance(data, tuple) and data else data
    inputs, _ = split_inputs(x)
    names = network.input if isinstance(network.input, dict) else {}
    return isinstance(inputs, dict) and bool(names) and set(inputs) == set(names)


def _named(inputs: Any, tasks: Any) -> Any:
    return inputs if tasks is None else {"inputs": inputs, "task": tasks}
