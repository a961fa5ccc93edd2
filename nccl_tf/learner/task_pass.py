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
    for option in asking(options, when):
        sums_of = graph(
            lambda batch, option=option: option.task_sums(batch, when), reduce_retracing=True
        )
        totals: Any = None
        for data in batches:
            sums = sums_of(counted(as_batch(tf.nest.map_structure(tf.convert_to_tensor, data))))
            if totals is None:
                totals = tf.nest.map_structure(tf.Variable, sums)
            else:  # In place, since a sum may take megabytes.
                tf.nest.map_structure(lambda total, part: total.assign_add(part), totals, sums)
        option.on_task_pass(when, tf.nest.map_structure(np.asarray, totals))
        option.has_passed = when == END


def counted(batch: Batch) -> Batch:
    """A batch in which examples with NaN weigh 0, with zeros for their inputs."""
    has_nan = rows_with_nan(batch.inputs)
    if has_nan is None:
        return batch

    def clean(part: tf.Tensor) -> tf.Tensor:
        if not part.dtype.is_floating:
            return part
        return tf.where(tf.reshape(has_nan, [-1] + [1] * (len(part.shape) - 1)), 0.0, part)

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
