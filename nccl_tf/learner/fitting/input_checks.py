"""Inputs that a network cannot take: said in a sentence where Keras and TensorFlow fail."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import split_inputs
from nccl_tf.errors import UserError
from nccl_tf.learner.fitting.task_ids import check_ids_form
from nccl_tf.streams.arrays import check_unmasked

_PADDED = "pad them to one length, x.to_tensor(), and mask the padding in the network"


@contextmanager
def explained_inputs(network: keras.Model, x: Any) -> Iterator[None]:
    """Run a verb on data, and say what is wrong with them where it fails.

    What Keras takes is taken: inputs are compared with the network after a failure alone.

    Args:
        network: The learner's.
        x: What the verb received as x.

    Raises:
        UserError: There are no data or examples, values are masked, task ids in them are no
            integers [n], or the body failed and the inputs do not fit.
    """
    _check_examples(x)
    check_ids_form(x)
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        sentence = _what_is_wrong(network, x)
        if sentence is None:
            raise
        raise UserError(sentence) from error


def check_inputs(network: keras.Model, x: Any) -> None:
    """Check that inputs are those that a network was built for, before a memory is built for them.

    Args:
        network: The learner's.
        x: As in a batch that `fit` delivers.

    Raises:
        UserError: They are not.
    """
    sentence = _what_is_wrong(network, x)
    if sentence is not None:
        raise UserError(sentence)


def check_counts(inputs: Any, labels: Any) -> None:
    """Check that there are as many labels as inputs, arrays [n, ...]; other inputs are not counted.

    Raises:
        UserError: There are not.
    """
    shapes = [getattr(column, "shape", None) for column in tf.nest.flatten(inputs)]
    counts = {shape[0] for shape in shapes if shape is not None and len(shape)}
    if counts and counts != {len(labels)}:
        raise UserError(
            f"received {len(labels)} labels for {sorted(counts)} inputs: expected a label for each "
            "example"
        )


def refuse_empty(x: Any) -> None:
    """Refuse data that turned out to hold nothing.

    Raises:
        UserError: Always.
    """
    raise UserError(
        f"received no examples (an empty {type(x).__name__}), expected at least one: look at what "
        "filters or selects them"
    )


def _check_examples(x: Any) -> None:
    if x is None:
        raise UserError("received no data: expected arrays, a dataset or a task of a stream as x")
    for leaf in tf.nest.flatten(x):
        check_unmasked(leaf, "inputs")
    if isinstance(x, tf.data.Dataset):
        if int(x.cardinality()) == 0:
            refuse_empty(x)
    elif any(getattr(leaf, "shape", None) and not leaf.shape[0] for leaf in tf.nest.flatten(x)):
        refuse_empty(x)


def _what_is_wrong(network: keras.Model, x: Any) -> str | None:
    """Why a network cannot take inputs; None where nothing is known to be wrong."""
    is_dataset = isinstance(x, tf.data.Dataset)
    if is_dataset:
        if next(iter(x), None) is None:
            refuse_empty(x)
        element = x.element_spec
        x = element[0] if isinstance(element, (tuple, list)) else element
    elif isinstance(x, keras.utils.PyDataset):
        x = x[0][0]
    inputs, places = split_inputs(x)[0], list(network.inputs)
    leaves = tf.nest.flatten(inputs)
    if not leaves:
        refuse_empty(x)
    if not all(hasattr(leaf, "shape") and hasattr(leaf, "dtype") for leaf in leaves):
        if not isinstance(inputs, (list, tuple, Mapping)):
            return None  # Keras says what it takes; of a list it would print all values.
        return (
            f"received a {type(inputs).__name__} as inputs, expected arrays: convert lists of "
            "numbers with np.asarray(x)"
        )
    for leaf in leaves:
        if (reason := _no_dense_array(leaf)) is not None:
            return reason
    if isinstance(inputs, Mapping):
        # A Sequential has one input without a name.
        struct = None if isinstance(network, keras.Sequential) else network.input
        named = struct if isinstance(struct, Mapping) else {place.name: place for place in places}
        if missing := sorted(named.keys() - inputs.keys()):
            return (
                f"received inputs named {sorted(inputs)}, but the network's are "
                f"{sorted(named)}: name them so, with {missing[0]!r}"
            )
        leaves, places = [inputs[name] for name in named], list(named.values())
    if len(leaves) != len(places):
        return (
            f"received {len(leaves)} inputs for an example, but the network has {len(places)}: "
            f"expected {[_form(place) for place in places]}"
        )
    for leaf, place in zip(leaves, places, strict=True):
        if is_dataset and list(leaf.shape) == list(place.shape)[1:]:
            return (
                f"received a dataset of single examples, {leaf.dtype.name} {list(leaf.shape)}: "
                "expected batches, dataset.batch(32)"
            )
        if not _fits(leaf, place):
            return (
                f"received inputs {_form(leaf)}, but the network's input {place.name!r} is "
                f"{_form(place)}: reshape or convert the inputs, or build the network for theirs"
            )
    return None


def _no_dense_array(leaf: Any) -> str | None:
    """Why a part of the inputs is no dense array; None where it is one."""
    if isinstance(leaf, (tf.RaggedTensor, tf.RaggedTensorSpec)):
        return f"received ragged inputs, but learners take examples of one shape: {_PADDED}"
    if isinstance(leaf, (tf.SparseTensor, tf.SparseTensorSpec)) or hasattr(leaf, "tocoo"):
        return (
            "received sparse inputs, but learners take dense ones: convert them with "
            "tf.sparse.to_dense(x), or x.toarray() of SciPy"
        )
    if leaf.dtype == object and not isinstance(np.ravel(leaf)[0], (str, bytes)):
        return (
            "received inputs of dtype object, expected numbers or text of one shape: pad sequences "
            "with keras.utils.pad_sequences, or give columns of several dtypes as a dictionary"
        )
    return None


def _fits(leaf: Any, place: Any) -> bool:
    """Whether Keras takes an array or spec for a symbolic input; it adds or drops a last 1."""
    if _is_text(leaf.dtype) != _is_text(place.dtype):
        return False
    sides, wanted = list(tf.TensorShape(leaf.shape))[1:], list(place.shape)[1:]
    if len(sides) == len(wanted) + 1 and sides[-1] == 1:
        sides.pop()
    elif len(sides) == len(wanted) - 1 and wanted[-1] == 1:
        wanted.pop()
    return len(sides) == len(wanted) and all(
        a == b or None in (a, b) for a, b in zip(sides, wanted, strict=True)
    )


def _is_text(dtype: Any) -> bool:
    return dtype in ("string", tf.string, object) or getattr(dtype, "kind", " ") in "SU"


def _form(part: Any) -> str:
    dtype = "string" if _is_text(part.dtype) else getattr(part.dtype, "name", part.dtype)
    sides = ["n", *("any" if side is None else str(side) for side in list(part.shape)[1:])]
    return f"{dtype} [{', '.join(sides)}]"
