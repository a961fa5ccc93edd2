"""Data as users give them: the form that they have, one conversion to arrays, and one check."""

from typing import Any

import numpy as np

from nccl_tf.errors import UserError

ARRAYS = "arrays"
"""Arrays, data frames, tensors, and dictionaries and tuples of them."""
DATASET = "dataset"
"""A `tf.data.Dataset` of batches."""
SEQUENCE = "sequence"
"""A `keras.utils.PyDataset` of batches."""
BATCHES = "batches"
"""What is iterated over once, such as a generator of batches."""


def form_of(data: Any) -> str:
    """The form of data: `ARRAYS`, `DATASET`, `SEQUENCE` or `BATCHES`."""
    import keras
    import tensorflow as tf

    if isinstance(data, tf.data.Dataset):
        return DATASET
    if isinstance(data, keras.utils.PyDataset):
        return SEQUENCE
    first = next(iter(tf.nest.flatten(data)), None)
    return ARRAYS if getattr(first, "shape", None) else BATCHES


def class_names_of(data: Any) -> list[str]:
    """The names of the classes that a data set tells, in the order of their numbers there.

    These are `class_names`, as of Keras's data sets of folders, or `class_indices`, a dictionary of
    numbers by name, as of its older iterators; none of other data.
    """
    names: Any = getattr(data, "class_names", None)
    if names is None:
        indices: dict[str, int] = getattr(data, "class_indices", None) or {}
        names = sorted(indices, key=lambda name: indices[name])
    return [str(name) for name in names]


# ---- checks ------------------------------------------------------------------------------------


def check_data(data: Any, form: str) -> None:
    """Check data of any form as far as they show what they hold.

    Args:
        data: The data.
        form: Their form, as `form_of` gives it.

    Raises:
        UserError: They are None, known to be empty, masked, ragged or sparse, or a data set of
            examples and not of batches.
    """
    import tensorflow as tf

    if data is None:
        raise UserError("received no data: expected arrays, a dataset or a task of a stream")
    is_dataset = form == DATASET
    parts = tf.nest.flatten(data.element_spec if is_dataset else data)
    for part in parts:
        check_unmasked(part, "inputs")
        check_not_ragged(part, "inputs")
    if is_dataset:
        if any(getattr(spec, "shape", None) == () for spec in parts):
            raise UserError(
                f"received a data set of single examples, {data.element_spec}: expected batches; "
                "take dataset.batch(10)"
            )
        is_empty = int(data.cardinality()) == 0
    else:
        sizes = [part.shape[0] for part in parts if getattr(part, "shape", None)]
        is_empty = not parts or 0 in sizes
    if is_empty:
        raise no_examples(data)


def no_examples(data: Any) -> UserError:
    """The error of data that are empty, or turned out to be."""
    return UserError(
        f"received no examples (an empty {type(data).__name__}), expected at least one: check how "
        "they are filtered or selected"
    )


def check_counts(inputs: Any, labels: Any) -> None:
    """Check that there are examples, and as many labels as inputs.

    Args:
        inputs: An array [n, ...], or a structure of such arrays.
        labels: [n, ...].

    Raises:
        UserError: There are not.
    """
    import tensorflow as tf

    counts = {len(column) for column in tf.nest.flatten(inputs)}
    if counts != {len(labels)}:
        raise UserError(
            f"received {len(labels)} labels for {sorted(counts)} inputs: expected a label for each "
            "example"
        )
    if not len(labels):
        raise no_examples(inputs)


def check_ends(data: Any) -> None:
    """Check that a data set has an end, as far as it says.

    Args:
        data: A `tf.data.Dataset` or a `keras.utils.PyDataset`.

    Raises:
        UserError: It has none.
    """
    import tensorflow as tf

    if form_of(data) == DATASET:
        is_endless = int(data.cardinality()) == tf.data.INFINITE_CARDINALITY
    else:
        is_endless = data.num_batches is None
    if is_endless:
        raise UserError(
            "received a data set without an end, which cannot be read whole: leave out its "
            "repeat(), or cut it, dataset.take(1000)"
        )


def check_unmasked(values: Any, name: str) -> None:
    """Check that no value of a NumPy masked array is masked: hidden values would be learned.

    Raises:
        UserError: One is.
    """
    if np.ma.is_masked(values):
        raise UserError(
            f"received {name} with {np.ma.count_masked(values)} masked values: expected all values "
            "to be known; fill them, values.filled(0), or leave out the examples that have them"
        )


def check_not_ragged(values: Any, name: str) -> None:
    """Check that rows have one length: a memory keeps examples of one shape.

    Args:
        values: An array, or what TensorFlow has in place of one, or its specification.
        name: What they are, for the message.

    Raises:
        UserError: The values are ragged or sparse.
    """
    kind = type(values).__name__
    if kind.startswith("RaggedTensor"):
        raise _ragged_rows(name)
    if kind.startswith("SparseTensor"):
        raise UserError(
            f"received sparse {name}: expected a dense array; take tf.sparse.to_dense(inputs)"
        )
    if type(values).__module__.startswith("scipy.sparse"):
        raise UserError(
            f"received sparse {name} (a {kind} of SciPy): expected a dense array; take "
            "inputs.toarray(), or a tf.data.Dataset whose batches are dense where that is too large"
        )


def _ragged_rows(name: str) -> UserError:
    return UserError(
        f"received ragged {name}: expected rows of one length; pad them, "
        "ragged.to_tensor(shape=[None, length]), in a dataset.map where they are in one"
    )


# ---- conversion --------------------------------------------------------------------------------


def as_columns(x: Any, name: str = "inputs") -> Any:
    """Data with tuples for lists, arrays for frames and text as tensors, as Keras takes them.

    Args:
        x: Inputs, labels or weights; None and data of other forms than arrays stay as they are.
        name: What they are, for messages.

    Raises:
        UserError: As for `as_array`.
    """
    import tensorflow as tf

    if isinstance(x, dict):
        return {key: as_columns(part, name) for key, part in x.items()}
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape"):
        return tuple(as_columns(part, name) for part in x)
    check_not_ragged(x, name)
    # Keras does not take the nullable and the Arrow dtypes of pandas, nor objects.
    if hasattr(x, "iloc") or (isinstance(x, np.ndarray) and x.dtype.kind in "OU"):
        x = as_array(x, name)
    is_text = isinstance(x, np.ndarray) and x.dtype == object
    return tf.constant(x) if is_text else x


def as_array(values: Any, name: str) -> np.ndarray:
    """An array of an array, list or data frame; text is an array of objects.

    Raises:
        UserError: Values are masked, ragged, sparse, of several types or no numbers.
    """
    check_unmasked(values, name)
    check_not_ragged(values, name)
    try:
        array = np.asarray(values)
        if array.dtype == object and array.ndim == 2 and hasattr(values, "items"):
            # Of a frame; NumPy makes objects of the nullable and the Arrow dtypes of pandas.
            array = np.stack([np.asarray(column) for _, column in values.items()], axis=1)
    except ValueError as error:
        raise UserError(
            f"received {name} of different shapes, expected one array: pad sequences to one "
            "length, and give several inputs as a dictionary of arrays"
        ) from error
    if array.dtype.kind not in "OSU":
        return array
    # tf.data delivers text as objects that are UTF-8.
    try:
        text = [v.decode() if isinstance(v, bytes) else v for v in array.flat]
    except UnicodeDecodeError as error:
        raise UserError(
            f"received {name} with bytes that are no UTF-8 ({error}): expected text; decode "
            'it with its own encoding before, such as value.decode("latin-1")'
        ) from error
    if not all(isinstance(value, str) for value in text):
        raise _no_text(values, array, name)
    return text_array(text).reshape(array.shape)


def text_array(values: Any) -> np.ndarray:
    """Texts as objects [n]: NumPy's own arrays of text give each row the length of the longest."""
    return np.array(values, object)


def _no_text(values: Any, array: np.ndarray, name: str) -> UserError:
    """The error of an array of objects that are not all texts."""
    if array.ndim == 2 and hasattr(values, "items"):
        for column, part in values.items():
            if np.asarray(part).dtype.kind not in "biuf":
                return UserError(
                    f"received {name} with the column {column!r} of dtype {part.dtype} beside "
                    "others: expected columns of numbers; encode it, or leave it out"
                )
    kinds = sorted({type(value).__name__ for value in array.flat})
    if set(kinds) <= {"ndarray", "list"}:
        return _ragged_rows(name)
    return UserError(
        f"received {name} of dtype object and shape {array.shape}, with {' and '.join(kinds[:4])}: "
        "expected an array of numbers or text, [examples, ...]; leave out examples with missing "
        "values, and give columns of several dtypes as a dictionary of arrays"
    )
