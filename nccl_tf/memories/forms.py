"""Shapes and dtypes of a stored example, one column per input."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.variables import count_words, needs_packing

_LOOK = "shape_that_the_memory_stores"
"""The name of the operation that looks at the shape of rows."""
_SHAPES = re.compile(r"(\[[\d,]+\]) is not compatible with expected shape (\[\?[\d,]*\])")


class Forms:
    """The columns of inputs and labels, where Keras does not track the dictionaries in them.

    Args:
        inputs: `tf.TensorSpec`s in the structure of the inputs.
        labels: Of the labels.

    Attributes:
        flat: The columns of the inputs one after another.
        packed: Those of `flat` that are held as words of eight bytes, by their number.
    """

    def __init__(self, inputs: Any, labels: tf.TensorSpec):
        self.inputs, self.labels = inputs, labels
        self.flat: list[tf.TensorSpec] = tf.nest.flatten(inputs)
        packed = [needs_packing(form.dtype.name) for form in self.flat]
        self.packed = {i: self.flat[i] for i, packs in enumerate(packed) if packs}

    def together(self, parts: Sequence[Any]) -> Any:
        """Pack one part for each of `flat` into the structure of the inputs."""
        return tf.nest.pack_sequence_as(self.inputs, list(parts))

    def variables(self, rows: int, make: Callable[..., keras.Variable]) -> list[keras.Variable]:
        """A variable of so many rows for each of `flat`.

        Args:
            rows: Their number.
            make: (name, shape, dtype) -> a variable.
        """
        made = []
        for i, form in enumerate(self.flat):
            shape, dtype = tuple(form.shape), form.dtype.name
            if i in self.packed:
                shape, dtype = (count_words(shape),), "int64"
            name = "inputs" if len(self.flat) == 1 else f"inputs_{i}"
            made.append(make(name, (rows, *shape), dtype))
        return made

    def config(self) -> dict[str, Any]:
        """The arguments of a memory that say the same, for a file."""
        return {
            "example_shape": as_lists(shape_of(self.inputs)),
            "example_dtype": as_lists(dtype_of(self.inputs)),
            "label_shape": self.labels.shape.as_list(),
            "label_dtype": self.labels.dtype.name,
        }


def input_specs(shape: Any, dtype: Any) -> Any:
    """The columns of the inputs, as `tf.TensorSpec`s in the structure of the inputs.

    Args:
        shape: Shape of one example, such as (height, width, channels); a dictionary or a sequence
            of shapes for several inputs.
        dtype: Their dtype by name; a dictionary or a sequence of names where they differ.
    """
    if isinstance(shape, Mapping):
        return {k: input_specs(side, _part(dtype, k)) for k, side in shape.items()}
    if any(isinstance(side, (Mapping, tuple, list)) for side in shape):
        return tuple(input_specs(side, _part(dtype, i)) for i, side in enumerate(shape))
    return tf.TensorSpec([int(side) for side in shape], dtype)


def column_of(rows: tf.Tensor) -> tf.TensorSpec:
    """The column for examples such as the rows of a tensor [n, ...].

    Raises:
        UserError: A side is unknown, so that rows of several shapes may come.
    """
    shape = rows.shape[1:]
    if not shape.is_fully_defined():
        raise UserError(
            f"received examples of shape {tuple(shape)}, of which a side is unknown: a memory has "
            "slots of one shape, so pad sequences to one length, or name example_shape"
        )
    return tf.TensorSpec(shape, rows.dtype)


def shape_of(specs: Any) -> Any:
    """The shapes in `tf.TensorSpec`s, tuples of integers in their structure."""
    return _map(lambda spec: tuple(spec.shape.as_list()), specs)


def dtype_of(specs: Any) -> Any:
    """The names of the dtypes in `tf.TensorSpec`s, in their structure."""
    return _map(lambda spec: spec.dtype.name, specs)


def as_lists(structure: Any) -> Any:
    """Shapes or dtypes for a file: lists in place of tuples."""
    if isinstance(structure, Mapping):
        return {key: as_lists(part) for key, part in structure.items()}
    is_sequence = isinstance(structure, (tuple, list))
    return [as_lists(part) for part in structure] if is_sequence else structure


def missing_columns(
    extras: Mapping[str, tuple[Sequence[Any], str]],
    wanted: Mapping[str, tuple[tuple[Any, ...], str]],
) -> list[str]:
    """Names of the further columns that a memory lacks, or has with entries of another shape.

    Args:
        extras: Those of a memory.
        wanted: Shape and dtype of an example's entry by name, as the memory's `extras`; a side is
            None where any is right.
    """
    shapes = {name: tf.TensorShape(shape) for name, (shape, _) in extras.items()}
    return [
        name
        for name, (shape, _) in wanted.items()
        if name not in shapes or not shapes[name].is_compatible_with(shape)
    ]


def check_rows(what: str, rows: Any, specs: Any, remedy: str) -> None:
    """Check that rows fit into columns.

    Args:
        what: The rows, for the message.
        rows: Tensors [n, ...].
        specs: The columns.
        remedy: Names of the memory's arguments for dtype and shape.

    Raises:
        UserError: Structure, dtype or shape differ.
    """
    try:
        tf.nest.assert_same_structure(rows, specs)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"received {what} {_map(lambda r: r.dtype.name, rows)}, but the memory stores "
            f"{dtype_of(specs)}: feed the inputs that it was built for, or build another memory"
        ) from error
    for part, spec in zip(tf.nest.flatten(rows), tf.nest.flatten(specs), strict=True):
        if part.dtype != spec.dtype:
            raise UserError(
                f"received {part.dtype.name} {what}, but the memory stores {spec.dtype.name}: "
                f'build the memory with {remedy}_dtype="{part.dtype.name}", or without shapes, or '
                f"feed {spec.dtype.name} {what}"
            )
        check_shape(what, part, spec, remedy)


def fitting(rows: tf.Tensor, spec: tf.TensorSpec) -> tf.Tensor:
    """Rows of a column's shape: a graph that does not know theirs looks at it when it runs.

    Args:
        rows: [n, ...], which `check_rows` has seen.
        spec: The column.
    """
    if rows.shape[1:].is_fully_defined():
        return rows
    return tf.ensure_shape(rows, [None, *spec.shape], name=_LOOK)


@contextmanager
def refusing_other_shapes() -> Iterator[None]:
    """A context in which graphs run that have `fitting` rows.

    Raises:
        UserError: Rows did not fit.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        shapes = _LOOK in error.message and _SHAPES.search(error.message)
        if not shapes:
            raise
        given, stored = (tuple(map(int, s.strip("[]").split(",")[1:])) for s in shapes.groups())
        raise _of_another_shape("rows", given, stored, "") from error


def check_shape(what: str, rows: tf.Tensor, spec: tf.TensorSpec, remedy: str) -> None:
    """Check that rows [n, ...] have the shape of a column, as far as it is known.

    The arguments are those of `check_rows`, of one column.

    Raises:
        UserError: They have not.
    """
    shape = rows.shape[1:]
    if not shape.is_compatible_with(spec.shape):
        built = f"build the memory with {remedy}_shape={tuple(shape)}, or without shapes, or "
        raise _of_another_shape(what, tuple(shape), tuple(spec.shape), built)


def _of_another_shape(what: str, shape: Any, stored: Any, remedy: str) -> UserError:
    return UserError(
        f"received {what} of shape {shape}, but the memory stores {stored}: {remedy}feed the "
        "shape that it stores (sequences padded to one length)"
    )


def _map(function: Any, structure: Any) -> Any:
    if isinstance(structure, Mapping):
        return {k: _map(function, part) for k, part in structure.items()}
    if isinstance(structure, (tuple, list)):
        return tuple(_map(function, part) for part in structure)
    return function(structure)


def _part(dtype: Any, key: Any) -> Any:
    return dtype if isinstance(dtype, str) else dtype[key]
