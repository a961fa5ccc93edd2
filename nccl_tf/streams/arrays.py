"""Labelled examples, data sets before they are cut into tasks, and pixel scaling."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError


class Examples(NamedTuple):
    """Labelled examples.

    Args:
        inputs: [n, ...], such as raw pixels uint8 [n, height, width, channels], or a dictionary of
            such arrays by name.
        labels: int32 [n], global class numbers (not numbers within a task), or float32 targets
            [n, ...].
    """

    inputs: Any
    labels: np.ndarray

    def take(self, indices: np.ndarray) -> "Examples":
        """Copy the examples at `indices` (integers [m], or a mask, bool [n])."""
        return self.map(lambda column: column[indices])

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Examples":
        """The examples of what `function` makes of each array."""
        if isinstance(self.inputs, dict):
            inputs: Any = {name: function(array) for name, array in self.inputs.items()}
        else:
            inputs = function(self.inputs)
        return Examples(inputs, function(self.labels))

    def form(self) -> list[tuple[Any, ...]]:
        """Shape and dtype of an example's columns; text has one dtype, however long it is.

        Inputs with names come first in the order of their names, each after its name.
        """
        form: list[tuple[Any, ...]] = [(c.shape[1:], dtype_name(c)) for c in self.columns()]
        names = _names(self.inputs)
        if names is None:
            return form
        inputs = zip(names, form[:-1], strict=True)
        return [*sorted((name, *what) for name, what in inputs), form[-1]]

    def named_like(self, other: "Examples") -> "Examples":
        """The same examples, with the inputs' names in the order of those of `other`.

        Raises:
            UserError: The names are others.
        """
        names, others = _names(self.inputs), _names(other.inputs)
        if names == others:
            return self
        if names is None or others is None or set(names) != set(others):
            raise UserError(
                f"received inputs named {names} beside inputs named {others}: expected inputs of "
                "the same names in all tasks and batches"
            )
        return Examples({name: self.inputs[name] for name in others}, self.labels)

    def columns(self) -> list[np.ndarray]:
        """The arrays: of the inputs, by name where they have names, then the labels."""
        inputs = self.inputs if isinstance(self.inputs, dict) else {"": self.inputs}
        return [*inputs.values(), self.labels]


def _names(inputs: Any) -> list[Any] | None:
    return list(inputs) if isinstance(inputs, dict) else None


def dtype_name(array: np.ndarray) -> str:
    """The dtype that a memory keeps the rows of an array in: "string" for text of any length."""
    return "string" if array.dtype.kind == "U" else array.dtype.name


class PixelScaling(NamedTuple):
    """Scaling of raw pixels by a network: (x * scale - mean) / std.

    Args:
        scale: Factor of the raw values, 1/255 or, for the digits, 1/16.
        mean: float32 [height, width, channels] (a mean image) or [channels], in scaled units.
        std: float32 [channels], in scaled units.
    """

    scale: float = 1 / 255
    mean: np.ndarray | None = None
    std: np.ndarray | None = None


class ImageSet(NamedTuple):
    """A data set before it is cut into tasks; of images, or of any other inputs.

    Args:
        train: Training examples.
        test: Test examples.
        pixels: Pixel scaling of the networks.
        domains: For a stream of domains, a value for each training and for each test example.
    """

    train: Examples
    test: Examples
    pixels: PixelScaling
    domains: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def has_classes(self) -> bool:
        """Whether the targets are class numbers."""
        return self.train.labels.dtype == np.int32


def images_from_arrays(
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    pixels: PixelScaling | None = None,
    domains: tuple[Any, Any] | None = None,
) -> ImageSet:
    """A data set from arrays.

    Args:
        train: Training inputs and targets, as for `examples_from_arrays`.
        test: Test inputs and targets, of the same form.
        pixels: How the package's networks scale inputs; None for 1/255 of uint8 and 1 of others.
        domains: A value for each training and for each test example, or None.

    Raises:
        UserError: The arrays do not fit each other.
    """
    for name, pair in (("train", train), ("test", test)):
        if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
            what = f" of {len(pair)}" if isinstance(pair, (tuple, list)) else ""
            raise UserError(
                f"received {name} as {type(pair).__name__}{what}, expected a pair of arrays, "
                "(inputs, targets)"
            )
    first, second = examples_from_arrays(*train), examples_from_arrays(*test)
    if (form := first.form()) != (other := second.form()):
        raise UserError(
            f"received training examples {form} and test examples {other}: expected inputs and "
            "targets of one shape and dtype"
        )
    if domains is not None:
        domains = _domains(domains[0], first), _domains(domains[1], second)
    if pixels is None:
        columns = first.columns()[:-1]
        pixels = PixelScaling(1 / 255 if all(c.dtype == np.uint8 for c in columns) else 1.0)
    return ImageSet(first, second, pixels, domains)


def examples_from_arrays(inputs: Any, targets: Any) -> Examples:
    """Examples in the form of streams, from what Keras's data sets and data frames hold.

    Args:
        inputs: An array [n, ...] or a dictionary of arrays; numbers or text. float64 becomes
            float32, and grey images uint8 [n, height, width] get their channel.
        targets: Class numbers, integers [n] or [n, 1] from 0; or numbers to predict, floats [n] or
            [n, outputs], as are several labels an example, [n, labels].

    Raises:
        UserError: The arrays have other dtypes, are empty or are of different lengths.
    """
    if isinstance(inputs, dict):
        columns: Any = {name: _column(array, name) for name, array in inputs.items()}
        lengths = {len(array) for array in columns.values()}
    else:
        columns = _column(inputs, "inputs")
        lengths = {len(columns)}
    labels = _targets(targets)
    if lengths != {len(labels)} or not len(labels):
        raise UserError(
            f"received {len(labels)} labels for {sorted(lengths)} inputs: expected a label for "
            "each example, and at least one example"
        )
    return Examples(columns, labels)


def _column(array: Any, name: str) -> np.ndarray:
    try:
        array = np.asarray(array)
    except ValueError as error:
        raise UserError(
            f"received {name} that are no array, but parts of other shapes: pad sequences to one "
            "length, and give several inputs as a dictionary of arrays"
        ) from error
    if array.dtype.kind in "OS" and all(isinstance(value, (str, bytes)) for value in array.flat):
        # tf.data delivers text as objects that are UTF-8.
        try:
            text = [v.decode() if isinstance(v, bytes) else v for v in array.flat]
        except UnicodeDecodeError as error:
            raise UserError(
                f"received {name} with bytes that are no UTF-8 ({error}): expected text; decode "
                'it with its own encoding before, such as value.decode("latin-1")'
            ) from error
        array = np.array(text, str).reshape(array.shape)
    if array.ndim == 0 or array.dtype.kind not in "biufU":
        raise UserError(
            f"received {name} of dtype {array.dtype.name} and shape {array.shape}: expected an "
            "array of numbers or text, [examples, ...]; give columns of several dtypes as a "
            "dictionary of arrays"
        )
    if array.dtype == np.uint8 and array.ndim == 3:
        return array[..., np.newaxis]
    # As Keras does.
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _targets(targets: Any) -> np.ndarray:
    array = np.asarray(targets)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    whole = array.dtype.kind in "biu"
    if not array.ndim or not (whole or array.dtype.kind == "f"):
        raise UserError(
            f"received labels of dtype {array.dtype.name} and shape {array.shape}: expected class "
            "numbers (integers [n] from 0) or numbers to predict; number classes that are names "
            "with np.unique(labels, return_inverse=True)[1]"
        )
    if not whole or array.ndim > 1:
        return array.astype(np.float32)
    if len(array) and not 0 <= int(array.min()) <= int(array.max()) < 2**31:
        raise UserError(
            f"received labels from {array.min()} to {array.max()}: expected an integer from 0 up "
            "for each example; renumber the classes from 0"
        )
    return array.astype(np.int32)


def _domains(values: Any, examples: Examples) -> np.ndarray:
    values = np.asarray(values)
    if values.shape != (len(examples.labels),):
        raise UserError(
            f"received domains of shape {values.shape} for {len(examples.labels)} examples: "
            "expected a value for each training and for each test example"
        )
    try:
        np.unique(values)
    except TypeError as error:  # None or NaN among names.
        raise UserError(
            f"received domains that have no order ({error}): expected names alone or numbers "
            'alone; give examples without a domain one of their own, such as "unknown", or leave '
            "them out"
        ) from error
    unknown = int(np.sum(values != values))  # NaN, in an array of objects too
    if unknown:
        raise UserError(
            f"received {unknown} domains that are NaN: expected a number for each example; give "
            "those without a domain a number of their own, or leave them out"
        )
    return values
