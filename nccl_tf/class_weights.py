"""Weights of classes, by which a `fit` weighs the examples of the stream and of memories alike."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.variables import read_rows


class ClassWeights:
    """A factor for each class, of examples of the stream and of memories alike.

    The factors are a variable on the device: one graph serves all of them, and has no operation for
    them before some are set. It is no Keras object, because it is no state of the learner that
    holds it: a `fit` says itself how it weighs classes.

    Attributes:
        are_set: Whether factors were set once, so that graphs look them up.
    """

    def __init__(self) -> None:
        self._factors: Any = None
        self.are_set = False

    def set(self, factors: Mapping[int, float], classes: int) -> bool:
        """Weigh examples by their classes from now on.

        Args:
            factors: By number, as `numbered` returns them; 1 for classes that are not among them.
            classes: How many there are.

        Returns:
            Whether graphs change: at the first factors, and where there are more classes.
        """
        changes = not self.are_set or self._factors.shape[0] < classes
        if changes:
            self.are_set = True
            self._factors = keras.Variable(
                np.ones(classes, np.float32), dtype="float32", trainable=False, autocast=False,
                name="class_weights",
            )  # fmt: skip
        values = np.ones(self._factors.shape[0], np.float32)
        values[list(factors)] = list(factors.values())
        self._factors.assign(values)
        return changes

    def weighed(self, batch: Batch) -> Batch:
        """A batch whose weights are multiplied by those of their classes, once set. Graph code.

        Examples that a memory of the learner returns are weighed already.
        """
        if not self.are_set:
            return batch
        return batch._replace(weights=batch.weights * self.of(batch.labels))

    def of(self, labels: tf.Tensor) -> tf.Tensor:
        """The factors of examples, float32 [n]. Graph code.

        Args:
            labels: Class numbers [n] or [n, 1], integers or floats; or one-hot rows [n, classes].
        """
        if labels.shape.rank == 2 and labels.shape[1] != 1:
            numbers = tf.argmax(labels, axis=1)
        else:
            numbers = tf.reshape(labels, [-1])
            numbers = tf.round(numbers) if numbers.dtype.is_floating else numbers
        # Examples of weight 0 may have any label.
        numbers = tf.clip_by_value(tf.cast(numbers, tf.int64), 0, self._factors.shape[0] - 1)
        return read_rows(self._factors, numbers)


def numbered(class_weight: Any, count: int, names: Sequence[str] | None = None) -> dict[int, float]:
    """The factors of classes by number, those that are not 1.

    Args:
        class_weight: Factors by class, its number or its name; None for none.
        count: Number of classes.
        names: Of the classes in the order of their numbers; None where they have none.

    Raises:
        UserError: It is no dictionary, a key is no class, or a factor is no number of 0 or more.
    """
    if class_weight is None:
        return {}
    if not isinstance(class_weight, Mapping):
        raise UserError(
            f"received a {type(class_weight).__name__} as class_weight, expected a dictionary of "
            "factors by class, such as {0: 1.0, 1: 30.0}: of an array take "
            "dict(enumerate(weights))"
        )
    factors = {
        _number(key, count, names): _factor(key, value) for key, value in class_weight.items()
    }
    return {number: factor for number, factor in sorted(factors.items()) if factor != 1}


def _number(key: Any, count: int, names: Sequence[str] | None) -> int:
    known = list(map(str, names or ()))
    if isinstance(key, str) and key in known:
        return known.index(key)
    try:
        if 0 <= operator.index(key) < count:
            return operator.index(key)
    except TypeError:
        pass
    by_name = f", or names such as {known[0]!r}" if known else ""
    raise UserError(
        f"received class_weight of the class {key!r}, expected numbers of classes from 0 to "
        f"{count - 1}{by_name}: correct it, or leave it out"
    )


def _factor(key: Any, value: Any) -> float:
    try:
        factor = float(value)
    except (TypeError, ValueError):
        factor = math.nan
    if not 0 <= factor < math.inf:
        raise UserError(
            f"received class_weight={{{key!r}: {value!r}}}, expected a finite number of 0 or more"
        )
    return factor
