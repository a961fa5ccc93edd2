"""A stream from data sets of a user, a pair for each task."""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from nccl_tf.arguments.choices import HEADS
from nccl_tf.errors import UserError, check_name
from nccl_tf.streams.arrays import Examples, PixelScaling, dtype_name, examples_from_arrays
from nccl_tf.streams.blurry import join_examples
from nccl_tf.streams.load import each_input
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import Task


def stream_from_datasets(
    pairs: Sequence[tuple[Any, Any]],
    *,
    num_classes: int | None = None,
    head: str = "single",
    pixels: PixelScaling | None = None,
    name: str = "own",
) -> Stream:
    """Make a stream whose tasks are data sets of a user.

    A data set is read whole once, to count its examples and classes, and again at each use, so that
    no more than the tasks in use are in memory. It has to deliver the same examples in the same
    order each time, so make it with `shuffle=False` or `reshuffle_each_iteration=False`; learning
    draws its own order and batches. A later reading of `Task.train` whose labels differ from the
    first, or their order, raises a `UserError`.

    Args:
        pairs: The training and the test data of each task, in order: each a `tf.data.Dataset` or a
            `keras.utils.PyDataset` of batches (inputs, labels), or such a pair of arrays. Inputs
            and labels are as for `stream_from_arrays`.
        num_classes: Number of classes; None for one more than the largest label.
        head: "single" (one head for all tasks) or "multi" (one head per task).
        pixels: Scaling of inputs by the package's networks; None for 1/255 of uint8 and 1 of
            others.
        name: Name of the stream.

    Raises:
        UserError: There are no pairs, a data set is of another type or empty, the tasks have
            inputs of other forms, or targets that are no classes are to have a head for each task.

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
    check_name("head", head, HEADS)
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
    tasks, form, most, outputs = [], None, 0, 1
    first: Examples | None = None
    for task_id, (train, test) in enumerate(pairs):
        examples, tested = read_examples(train), read_examples(test)
        for part in (examples, tested):
            form = form or part.form()
            if part.form() != form:
                raise UserError(
                    f"task {task_id} has examples {part.form()} and the first one {form}: expected "
                    "inputs and targets of one shape and dtype"
                )
            if not np.isfinite(part.labels).all():
                raise UserError(
                    f"task {task_id} has targets that are NaN or infinite: expected numbers to "
                    "predict; leave out the examples that have none"
                )
        first = first or examples
        tasks.append(_task(task_id, train, test, examples))
        most = max(most, int(examples.labels.max()), int(tested.labels.max()))
        outputs = int(np.prod(examples.labels.shape[1:]))
    assert first is not None
    has_classes = first.labels.dtype == np.int32
    if head == "multi" and not has_classes:
        raise UserError(
            f'received targets {first.labels.dtype.name} {first.labels.shape} and head="multi": '
            "expected class numbers, integers [n] from 0, for a head is the classes of a task; "
            'number one-hot labels with labels.argmax(axis=1), or take head="single"'
        )
    count = most + 1 if has_classes else outputs
    if num_classes is not None and has_classes and num_classes < count:
        raise UserError(
            f"received num_classes={num_classes} and labels up to {most}: expected at least {count}"
        )
    is_bytes = all(column.dtype == np.uint8 for column in first.columns()[:-1])
    return Stream(
        name=name,
        family="other",
        head=head,
        tasks=tuple(tasks),
        tuning=(),
        num_tasks=len(tasks),
        num_classes=num_classes or count,
        example_shape=each_input(first.inputs, lambda array: array.shape[1:]),
        pixels=pixels or PixelScaling(1 / 255 if is_bytes else 1.0),
        example_dtype=each_input(first.inputs, dtype_name),
    )


def read_examples(data: Any) -> Examples:
    """All examples of a data set, in its order.

    Args:
        data: A `tf.data.Dataset` or `keras.utils.PyDataset` of batches, or a pair of arrays.

    Raises:
        UserError: It is something else, is empty, its elements are no pairs of batches, or its
            batches have examples of several shapes.
    """
    if isinstance(data, (tuple, list)) and len(data) == 2:
        return examples_from_arrays(*data)
    parts = []
    for batch in _batches(data):
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not np.ndim(batch[1]):
            raise UserError(
                "received a data set whose elements are no batches (inputs, labels): expected such "
                "batches; weights are not kept, and single examples need dataset.batch(32)"
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
        raise UserError("received an empty data set: expected at least one batch")
    return join_examples(parts)


def _batches(data: Any) -> Iterable[Any]:
    import keras

    if hasattr(data, "as_numpy_iterator"):
        return data.as_numpy_iterator()
    if isinstance(data, keras.utils.PyDataset):
        return (data[number] for number in range(data.num_batches))
    raise UserError(
        f"received a {type(data).__name__} as the data of a task: expected a tf.data.Dataset, a "
        "keras.utils.PyDataset or a pair of arrays (inputs, labels)"
    )


def _task(task_id: int, train: Any, test: Any, examples: Examples) -> Task:
    has_classes = examples.labels.dtype == np.int32
    classes = tuple(np.unique(examples.labels).tolist()) if has_classes else ()
    # Cached, because a run evaluates on this task after every later task.
    return Task(
        task_id,
        classes,
        len(examples.labels),
        functools.partial(_read_again, train, task_id, _label_hash(examples)),
        functools.cache(functools.partial(read_examples, test)),
    )


def _label_hash(examples: Examples) -> bytes:
    return hashlib.sha256(examples.labels.tobytes()).digest()


def _read_again(data: Any, task_id: int, label_hash: bytes) -> Examples:
    """The examples of a data set that was read before.

    Raises:
        UserError: Its labels, or their order, are not those of the first reading.
    """
    examples = read_examples(data)
    if _label_hash(examples) != label_hash:
        raise UserError(
            f"received other labels, or another order, from the training data of task {task_id} "
            "than when it was read first: expected the same examples in the same order at each "
            "reading; make it with shuffle=False, or with "
            "dataset.shuffle(..., reshuffle_each_iteration=False)"
        )
    return examples
