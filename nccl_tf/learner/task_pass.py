"""A pass over a task's examples, before its first step or after its last one."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, rows_with_nan
from nccl_tf.errors import UserError
from nccl_tf.keras_private import graph
from nccl_tf.learner.data import FitData
from nccl_tf.learner.options.option import Option
from nccl_tf.user_data import BATCHES, SEQUENCE

BEGIN, END = "begin", "end"


def asking(options: Iterable[Option], *when: str) -> list[Option]:
    """The options that ask for a pass.

    Args:
        options: Of a learner.
        *when: "begin", before a task's first step, or "end", after its last one.
    """
    return [option for option in options if set(when) & set(option.task_pass)]


def not_passed(options: Iterable[Option]) -> list[Option]:
    """The options that ask for a pass at a task's end and have had none of the open task."""
    return [option for option in asking(options, END) if not option.has_passed]


def pass_task(
    options: Iterable[Option], when: str, batches: Iterable[Any], as_batch: Callable[[Any], Batch]
) -> None:
    """Pass a task's examples, and give the options that ask for it the sums over them.

    Args:
        options: Of a learner.
        when: "begin" or "end".
        batches: Of the task, as Keras delivers them.
        as_batch: `Learner.as_batch`.
    """
    asked = asking(options, when)
    sums = [_Sums(option, when, as_batch) for option in asked]
    for data in batches:
        tensors = tf.nest.map_structure(tf.convert_to_tensor, data)
        for each in sums:
            each.add(tensors)
    for option, each in zip(asked, sums, strict=True):
        option.on_task_pass(when, each.taken())
        option.has_passed = when == END


class _Sums:
    """What an option sums over a pass, of the rows of several batches at once.

    Args:
        option: The option.
        when: "begin" or "end".
        as_batch: `Learner.as_batch`.
    """

    def __init__(self, option: Option, when: str, as_batch: Callable[[Any], Batch]):
        def rows_of(data: Any) -> tuple[Any, tf.Tensor]:
            batch = counted(as_batch(data))
            return option.task_rows(batch, when), tf.shape(batch.weights)[0]

        self._rows_of = graph(rows_of, reduce_retracing=True)
        self._sums_of = graph(lambda rows: option.task_sums(rows, when), reduce_retracing=True)
        self._enough = option.rows_at_once
        self._waiting: list[Any] = []
        self._count = 0
        self._totals: Any = None

    def add(self, data: Any) -> None:
        """Count a batch as Keras delivers it, of tensors."""
        rows, count = self._rows_of(data)
        self._waiting.append(rows)
        self._count += int(count)
        if self._count >= self._enough:
            self._sum()

    def taken(self) -> Any:
        """The sums, as NumPy arrays; None where there was no batch."""
        if self._waiting:
            self._sum()
        totals = self._totals
        return None if totals is None else tf.nest.map_structure(np.asarray, totals)

    def _sum(self) -> None:
        rows, *more = self._waiting
        if more:
            rows = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), rows, *more)
        self._waiting, self._count = [], 0
        sums = self._sums_of(rows)
        if self._totals is None:
            self._totals = tf.nest.map_structure(tf.Variable, sums)
        else:
            tf.nest.map_structure(_add, self._totals, sums)


def _add(total: tf.Variable, part: Any) -> None:
    """Add in place, since a sum may take megabytes; of slices, to their places alone."""
    if isinstance(part, tf.IndexedSlices):
        total.scatter_add(part)
    else:
        total.assign_add(part)


def counted(batch: Batch) -> Batch:
    """A batch in which examples with NaN weigh 0, with zeros for their inputs."""
    has_nan = rows_with_nan(batch.inputs)
    if has_nan is None:
        return batch

    def clean(part: tf.Tensor) -> tf.Tensor:
        if not part.dtype.is_floating:
            return part
        is_zero = tf.reshape(has_nan, [-1] + [1] * (len(part.shape) - 1))
        return tf.where(is_zero, tf.zeros([], part.dtype), part)

    inputs = tf.nest.map_structure(clean, batch.inputs)
    return batch._replace(inputs=inputs, weights=tf.where(has_nan, 0.0, batch.weights))


def batches_of(data: FitData) -> Iterable[Any]:
    """The batches of the data of `fit` once more: of a task in the order of the first epoch.

    Args:
        data: What is trained on.
    """
    if data.begin_epoch is not None:
        data.begin_epoch(0)
    if data.form == SEQUENCE:
        return (data.x[number] for number in range(data.x.num_batches))
    batches = data.batches()
    return data.x if batches is None else batches


def check_can_be_passed(data: FitData, options: Iterable[Option]) -> None:
    """Check that data can be passed again, where an option asks for it.

    Raises:
        UserError: They are a generator, which delivers its batches once.
    """
    asked = asking(options, BEGIN, END)
    if asked and data.form == BATCHES:
        raise UserError(
            f"received a generator, but {type(asked[0]).__name__} passes a task's examples once "
            "more, and a generator delivers them once: give arrays, a tf.data.Dataset or a "
            "keras.utils.PyDataset"
        )
