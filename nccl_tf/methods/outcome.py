"""What a step leaves to be measured."""

from typing import NamedTuple

import tensorflow as tf


class Outcome(NamedTuple):
    """What there is to measure of one step, or of several along one more leading dimension.

    Attributes:
        logits: [n, classes], as in `Step`.
        values: float32 [quantities], as in `Step`; the loss is not finite if it was skipped.
        measured: float32 [quantities], as in `Step`; all 0 if the step was skipped.
    """

    logits: tf.Tensor
    values: tf.Tensor
    measured: tf.Tensor
