"""What evaluation and its graph tell each other, which is no state of the model."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, class_numbers
from nccl_tf.learner.fitting.hints import hint_of_nan
from nccl_tf.learner.fitting.labels import check_labels


class NamedTask:
    """The task that a call of `evaluate` or `predict` names; -1 where it names none.

    Not a Keras object, because it is no state of the model that holds it.
    """

    def __init__(self) -> None:
        self.variable = keras.Variable(
            -1, dtype="int32", trainable=False, autocast=False, name="named_task"
        )


class NanExamples:
    """How many evaluated examples had NaN: counted in the graph, told after it.

    Not a Keras object, as `NamedTask`.
    """

    def __init__(self) -> None:
        self._count = keras.Variable(
            0, dtype="int32", trainable=False, autocast=False, name="nan_examples"
        )

    def add(self, count: tf.Tensor) -> None:
        """Add to the count. Graph code."""
        self._count.assign(self._count.value + count)

    def note(self, learner: Any, outputs: tf.Tensor, weights: tf.Tensor) -> None:
        """Count the examples with NaN in their outputs [n, ...] and a weight [n]. Graph code."""
        has_nan = tf.reduce_any(tf.math.is_nan(outputs), axis=list(range(1, outputs.shape.rank)))
        flags = tf.cast(has_nan, tf.int32)
        all_of_them = learner.replicas.gather(
            Batch(flags, flags, flags, tf.cast(weights, "float32"))
        )
        counted = (all_of_them.labels > 0) & (all_of_them.weights != 0)
        self.add(tf.math.count_nonzero(counted, dtype=tf.int32))

    def tell(self, learner: Any) -> None:
        """Tell of those that were counted, once for a learner, and forget them."""
        count = int(self._count.numpy())
        if count:
            self._count.assign(0)
            hint_of_nan(learner, count)


class UnknownLabel:
    """A label of evaluated data that no head has: noted in the graph, refused after it.

    A graph cannot raise a `UserError`, and a dataset is read in the graph. Not a Keras object, as
    `NamedTask`.
    """

    def __init__(self) -> None:
        # Whether there is one, the label and its task.
        self._noted = keras.Variable(
            np.zeros(3, np.int64), dtype="int64", trainable=False, autocast=False,
            name="unknown_label",
        )  # fmt: skip

    def replaced(self, learner: Any, data: Any, batch: Batch) -> Batch:
        """A batch with the learner's classes for labels, and tasks that it has. Graph code.

        Args:
            learner: The learner that evaluates.
            data: `(x, labels)` or `(x, labels, weights)`.
            batch: What `as_batch` made of it.
        """
        loss, classes = learner.example_loss, learner.num_classes
        if not loss.checks_labels:
            return batch
        one_hot = not loss.takes_class_numbers
        # Labels of 64 bits are compared before anything cuts them to 32.
        labels = class_numbers(batch.labels) if one_hot else tf.reshape(data[1], [-1])
        labels, tasks = tf.cast(labels, tf.int64), batch.tasks
        known = (labels >= 0) & (labels < classes)
        if learner.heads is not None:
            table = learner.heads.table
            has_head = (tasks >= 0) & (tasks < len(table))
            tasks = tf.where(has_head, tasks, 0)
            pairs = tf.stack([tf.cast(tasks, tf.int64), tf.where(known, labels, 0)], axis=1)
            known &= has_head & tf.gather_nd(table, pairs)
        unknown = tf.where(known, 0.0, batch.weights)
        self._note(learner.replicas.gather(Batch(labels, labels, batch.tasks, unknown)))
        if one_hot:
            return batch._replace(tasks=tasks)
        return batch._replace(tasks=tasks, labels=tf.where(known, batch.labels, 0))

    def refuse(self, learner: Any) -> None:
        """Refuse what was noted, as `fit` does, and forget it.

        Raises:
            UserError: A label was no class of its task.
        """
        is_noted, label, task = self._noted.numpy()
        if is_noted:
            self._noted.assign(np.zeros(3, np.int64))
            check_labels(np.array([label]), task, None, learner.num_classes, learner.head_table())

    def _note(self, examples: Batch) -> None:
        """Note the first example whose weight is not 0; its inputs are the label."""
        is_unknown = examples.weights != 0
        # One more, because an argmax over nothing is no number.
        columns = [
            tf.pad(tf.cast(c, tf.int64), [[0, 1]]) for c in (examples.inputs, examples.tasks)
        ]
        first = tf.argmax(tf.pad(tf.cast(is_unknown, tf.int32), [[0, 1]]))
        note = tf.stack([tf.constant(1, tf.int64), *(column[first] for column in columns)])
        self._noted.assign(tf.where(tf.reduce_any(is_unknown), note, self._noted.value))
