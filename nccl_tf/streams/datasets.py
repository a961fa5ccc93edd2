"""A stream from data sets of a user, a pair for each task."""

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from nccl_tf.arguments.choices import HEADS
from nccl_tf.errors import UserError, checked_name, one_line
from nccl_tf.streams.arrays import (
    Examples,
    PixelScaling,
    check_finite,
    check_largest_class,
    check_same_columns,
    check_same_form,
    dtype_name,
    each_input,
    examples_from_arrays,
    name_classes,
    own_order,
    pixel_range,
    pixel_scaling,
    warn_of_targets,
    with_positive,
)
from nccl_tf.streams.blurry import join_examples
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import Task
from nccl_tf.user_data import (
    DATASET,
    SEQUENCE,
    check_data,
    check_ends,
    class_names_of,
    form_of,
    no_examples,
    text_array,
)

_NODES = re.compile(r"\{\{.*?\}\}|\[\[.*?\]\]|\[Op:.*", re.DOTALL)
"""Lines on its graph in the message of an error of TensorFlow."""


def stream_from_datasets(
    pairs: Sequence[tuple[Any, Any]],
    *,
    num_classes: int | None = None,
    head: str = "single",
    pixels: PixelScaling | None = None,
    positive: str | None = None,
    name: str = "own",
) -> Stream:
    """Make a stream whose tasks are data sets of a user.

    A data set is read whole once, to count its examples and classes, and again at each use, so that
    no more than the tasks in use are in memory. It has to deliver the same examples in the same
    order each time, so make it with `shuffle=False` or `reshuffle_each_iteration=False`; learning
    draws its own order and batches. A later reading of `Task.train` whose labels differ from the
    first, or their order, raises a `UserError`.

    Classes that have names go by them, in all tasks and in training and test alike: labels that are
    text, and those of data sets with `class_names` or `class_indices`, as
    `keras.utils.image_dataset_from_directory` makes them, whether these are numbers or one-hot
    rows, integers or floats. The stream numbers them in order there, where it is the same for
    all, else sorted, and keeps them in `Stream.class_names`. A data set that was mapped has lost
    its `class_names`: set them again, `mapped.class_names = folder.class_names`.

    Training data are read anew for every training, test data once, when they are first evaluated:
    a data set whose inputs depend on what changes, such as a network's weights, is no stream. Take
    `Stream.map`, which computes all at once.

    Args:
        pairs: The training and the test data of each task, in order: each a `tf.data.Dataset` or a
            `keras.utils.PyDataset` of batches (inputs, labels), or such a pair of arrays. Inputs
            and labels are as for `stream_from_arrays`.
        num_classes: Number of classes; None for that of the names, or one more than the largest
            label.
        head: "single" (one head for all tasks) or "multi" (one head per task).
        pixels: Scaling of inputs by the package's networks; None as for `stream_from_arrays`.
        positive: As for `stream_from_arrays`.
        name: Name of the stream.

    Raises:
        UserError: There are no pairs, a data set is of another type, empty, endless or ragged,
            inputs are NaN or infinite, the tasks have inputs of other forms, targets that are no
            classes are to have a head for each task, or numbers to predict are of folders with
            other names.

    Example:

    ```python
    images = np.zeros((20, 8, 8, 1), np.uint8)
    first, second = (
        tf.data.Dataset.from_tensor_slices((images, labels)).batch(5)
        for labels in ([0, 1] * 10, [2, 3] * 10)
    )
    stream = nccl_tf.stream_from_datasets([(first, first), (second, second)], head="multi")
    ```
    """
    checked_name("head", head, HEADS)
    if isinstance(pairs, (str, dict)) or not isinstance(pairs, Sequence) or not len(pairs):
        raise UserError(
            f"received {type(pairs).__name__} as pairs: expected a list of the training and the "
            "test data of each task, [(train, test), ...]"
        )
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise UserError(
            "received a task that is no pair: expected the training and the test data of each "
            "task, [(train, test), ...]"
        )
    check_same_columns([
        data for pair in pairs for data in pair
        if isinstance(data, (tuple, list)) and len(data) == 2
    ])  # fmt: skip
    first: Examples | None = None
    parts, ranges, outputs = [], [], 1
    for task_id, pair in enumerate(pairs):
        with _naming(task_id):
            read = [read_examples(data) for data in pair]
            for examples, data in zip(read, pair, strict=True):
                given = data[0] if isinstance(data, (tuple, list)) else None
                check_finite(examples, "inputs", getattr(given, "columns", None))
        if first is None:
            warn_of_targets(read[0].labels)
        first = first or read[0]
        for examples in read:
            check_same_form(
                f"examples of task {task_id}", examples.form(), "the first ones", first.form()
            )
        parts.append([_Part(data, examples) for data, examples in zip(pair, read, strict=True)])
        ranges.append(pixel_range(read[0]))
        outputs = int(np.prod(read[0].labels.shape[1:]))
    assert first is not None
    flat = [part for pair in parts for part in pair]
    names = _class_names(flat)
    if positive is not None:
        names = with_positive(names, positive)
    tasks = [_task(task_id, train, test, names) for task_id, (train, test) in enumerate(parts)]
    has_classes = bool(tasks[0].classes)
    if head == "multi" and not has_classes:
        raise UserError(
            f'received targets {first.labels.dtype.name} {first.labels.shape} and head="multi": '
            "expected class numbers, integers [n] from 0, for a head is the classes of a task; "
            'number one-hot labels with labels.argmax(axis=1), or take head="single"'
        )
    count = outputs
    if has_classes:
        count = len(names) if names else 1 + max(max(part.present) for part in flat)
        check_largest_class(count - 1, sum(part.count for part in flat))
    if num_classes is not None and has_classes and num_classes < count:
        raise UserError(
            f"received num_classes={num_classes} for data of {count} classes: expected at least "
            f"{count}"
        )
    return Stream(
        name=name,
        family="other",
        head=head,
        tasks=tuple(tasks),
        tuning=(),
        num_tasks=len(tasks),
        num_classes=num_classes or count,
        example_shape=each_input(first.inputs, lambda array: array.shape[1:]),
        pixels=pixels or pixel_scaling(ranges),
        example_dtype=each_input(first.inputs, dtype_name),
        class_names=names,
        positive=positive,
    )


@contextmanager
def _naming(task_id: int) -> Iterator[None]:
    """Say which task's data a `UserError` of the body is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"in the data of task {task_id}: {error}") from error


def read_examples(data: Any) -> Examples:
    """All examples of a data set, in its order, with the names of classes where it tells them.

    Args:
        data: A `tf.data.Dataset` or `keras.utils.PyDataset` of batches, or a pair of arrays.

    Raises:
        UserError: It is something else, is empty or endless, its elements are no pairs of batches,
            its batches have examples of several shapes, a file cannot be read, or a label is none
            of its `class_names`.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return examples_from_arrays(*data)
    parts = []
    for batch in _batches(data):
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not np.ndim(batch[1]):
            raise UserError(
                "received a data set whose elements are no batches (inputs, labels): expected such "
                "batches; weights are not kept"
            )
        parts.append(examples_from_arrays(*batch))
        first, form = ([c[:-1] for c in part.form()] for part in (parts[0], parts[-1]))
        if form != first:
            raise UserError(
                f"received a data set with batches of examples {first} and {form}: expected the "
                "same names and shapes in all batches; pad sequences to one length, "
                "dataset.padded_batch(32, ([length], []))"
            )
    if not parts:
        raise no_examples(data)
    examples, names = join_examples(parts), class_names_of(data)
    numbers = _class_numbers(examples.labels, len(names)) if names else None
    if numbers is None:
        return examples
    if (most := numbers.max()) >= len(names):
        raise UserError(
            f"received labels up to {most} and {len(names)} class_names: expected a name for each"
        )
    return Examples(examples.inputs, text_array(names)[numbers])


def _class_numbers(labels: np.ndarray, count: int) -> np.ndarray | None:
    """Class numbers [n] of labels of `count` names; None where they are something else."""
    if labels.dtype == np.int32:
        return labels
    if labels.dtype == object or (labels < 0).any() or (labels % 1).any():
        return None
    if labels.ndim == 1:  # of two classes, as Keras delivers them for a binary cross-entropy
        return labels.astype(np.int32)
    if labels.shape[1:] == (count,) and (labels.sum(axis=1) == 1).all():
        return labels.argmax(axis=1)
    return None


def _batches(data: Any) -> Iterable[Any]:
    form = form_of(data)
    if form not in (DATASET, SEQUENCE):
        raise UserError(
            f"received a {type(data).__name__} as the data of a task: expected a tf.data.Dataset, "
            "a keras.utils.PyDataset or a pair of arrays (inputs, labels)"
        )
    check_data(data, form)
    check_ends(data)
    if form == DATASET:
        return _batches_of(data)
    return (data[number] for number in range(data.num_batches))


def _batches_of(dataset: Any) -> Iterator[Any]:
    """The batches of a `tf.data.Dataset`.

    Raises:
        UserError: TensorFlow cannot read one, such as a broken image.
    """
    import tensorflow as tf

    try:
        yield from dataset.as_numpy_iterator()
    except tf.errors.OpError as error:
        # Keras keeps the paths of a data set of folders beside it.
        for path in getattr(dataset, "file_paths", ()):
            try:
                tf.io.decode_image(tf.io.read_file(path), expand_animations=False)
            except tf.errors.OpError:
                raise UserError(
                    f"the image file {path} is broken or no image: get it again or remove it"
                ) from error
        reason = one_line(_NODES.sub("", error.message))
        raise UserError(f"received a data set that TensorFlow cannot read: {reason}") from error


class _Part:
    """The training or the test data of a task, with results of their first reading."""

    def __init__(self, data: Any, examples: Examples) -> None:
        labels = examples.labels
        is_text = labels.dtype == object
        given = data[1] if isinstance(data, (tuple, list)) else None
        self.data, self.count, self.label_hash = data, len(labels), _label_hash(examples)
        self.present = np.unique(labels).tolist() if is_text or labels.dtype == np.int32 else []
        self.order = class_names_of(data) or (own_order(given, labels) if is_text else [])


def _class_names(parts: Sequence[_Part]) -> tuple[str, ...] | None:
    """The names of the classes over all parts; None where they are numbers or no classes.

    Raises:
        UserError: Labels are no classes, of folders with other names.
    """
    if any(isinstance(label, str) for label in parts[0].present):
        return name_classes([(part.order, part.present) for part in parts])
    other = next((part.order for part in parts if part.order != parts[0].order), None)
    if other is not None:
        raise UserError(
            f"received labels that are no class numbers, of the class_names {parts[0].order} and "
            f"{other}, so that the same label would be several classes: expected class numbers, "
            'label_mode="int"'
        )
    return None


def _task(task_id: int, train: _Part, test: _Part, class_names: tuple[str, ...] | None) -> Task:
    classes = train.present
    if class_names is not None:
        classes = sorted(map(class_names.index, classes))

    def read_train() -> Examples:
        return _read_again(train, task_id).numbered(class_names)

    @functools.cache  # Because a run evaluates on this task after every later task.
    def read_test() -> Examples:
        return read_examples(test.data).numbered(class_names)

    return Task(task_id, tuple(classes), train.count, read_train, read_test)


def _label_hash(examples: Examples) -> bytes:
    labels = examples.labels
    content = repr(labels.tolist()).encode() if labels.dtype == object else labels.tobytes()
    return hashlib.sha256(content).digest()


def _read_again(part: _Part, task_id: int) -> Examples:
    """The examples of a data set that was read before.

    Raises:
        UserError: Its labels, or their order, are not those of the first reading.
    """
    examples = read_examples(part.data)
    if _label_hash(examples) != part.label_hash:
        raise UserError(
            f"received other labels, or another order, from the training data of task {task_id} "
            "than at the first reading: expected the same examples in the same order at each "
            "reading; make it with shuffle=False, or with "
            "dataset.shuffle(..., reshuffle_each_iteration=False)"
        )
    return examples
