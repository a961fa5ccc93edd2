"""Learning rates that fall within every task, or from task to task."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import STEP_SCHEDULES
from nccl_tf.errors import UserError, checked_name

LEAST_RATE = 5e-5
"""The decay of the learning rate by tasks stops here."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class TaskSchedule(keras.optimizers.schedules.LearningRateSchedule):
    r"""The learning rate of each step of a stream, for any Keras optimizer.

    Keras's own schedules fall once, over all steps. This one falls in every task. With $t$ the step
    within a task, from 0, of $T$ steps, and the rate $\alpha$, "cosine" gives
    $\alpha (1 + \cos(\pi t / T)) / 2$ (Loshchilov and Hutter, ICLR 2017, as Keras's `CosineDecay`)
    and "piecewise" $\alpha f^k$, with $k$ the number of milestones $m$ with $t \geq m T$. After the
    last task the rate stays where it ended. A skipped step does not count.

    Args:
        name: "cosine" or "piecewise".
        learning_rate: $\alpha$, of all tasks or one a task.
        steps: $T$ of each task, its number of updates.
        milestones: Of "piecewise", the fractions of a task after which the rate falls.
        factor: $f$ of "piecewise", by which it falls.

    Raises:
        UserError: The name is unknown, a rate, number of steps, milestone or factor is out of
            range, or there are not as many rates as tasks.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
    rate = nccl_tf.TaskSchedule("cosine", 0.1, [task.steps(10, 2) for task in stream])
    network = nccl_tf.networks.mlp(
        stream.example_shape, stream.num_classes, pixels=stream.pixels
    )
    learner = nccl_tf.Finetune(network)
    learner.compile(keras.optimizers.SGD(rate, momentum=0.9))
    nccl_tf.learn(learner, stream, batch_size=10, epochs=2, verbose=0)
    ```
    """

    def __init__(
        self,
        name: str,
        learning_rate: float | Sequence[float],
        steps: Sequence[int],
        *,
        milestones: Sequence[float] = (0.5, 0.75),
        factor: float = 0.1,
    ):
        self.name = checked_name("schedule", name, STEP_SCHEDULES)
        self.steps = [int(count) for count in steps]
        if not self.steps or min(self.steps) < 1:
            raise UserError(
                f"received steps={list(steps)}, expected the number of steps of each task, 1 or "
                "more, such as [task.steps(10) for task in stream]"
            )
        single = isinstance(learning_rate, numbers.Real)
        rates: Any = [learning_rate] * len(self.steps) if single else learning_rate
        self.rates = [float(rate) for rate in rates]
        if len(self.rates) != len(self.steps):
            raise UserError(
                f"received {len(self.rates)} rates for {len(self.steps)} tasks: expected a rate, "
                "or one for each task"
            )
        if not all(math.isfinite(rate) and rate >= 0 for rate in self.rates):
            raise UserError(f"received learning_rate={learning_rate}, expected finite rates from 0")
        self.milestones, self.factor = sorted(map(float, milestones)), float(factor)
        if not all(0 < milestone < 1 for milestone in self.milestones):
            raise UserError(
                f"received milestones={list(milestones)}, expected fractions of a task in (0, 1)"
            )
        if not 0 <= self.factor <= 1:
            raise UserError(f"received factor={factor}, expected a number from 0 to 1")

    def __call__(self, step: Any) -> tf.Tensor:
        """The rate of a step, float32 scalar.

        Args:
            step: Updates so far, an integer scalar.
        """
        ends = np.cumsum(self.steps)
        step = tf.cast(tf.convert_to_tensor(step), tf.int64)
        task = tf.minimum(
            tf.math.count_nonzero(step >= tf.constant(ends, tf.int64)), len(self.steps) - 1
        )
        counts = tf.gather(tf.constant(self.steps, tf.int64), task)
        within = tf.minimum(step - (tf.gather(tf.constant(ends, tf.int64), task) - counts), counts)
        part = tf.cast(within, tf.float32) / tf.cast(counts, tf.float32)
        if self.name == "cosine":
            share = (1 + tf.cos(math.pi * part)) / 2
        else:
            passed = tf.math.count_nonzero(part >= tf.constant(self.milestones), dtype=tf.int64)
            share = tf.pow(tf.constant(self.factor), tf.cast(passed, tf.float32))
        return tf.gather(tf.constant(self.rates, tf.float32), task) * share

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return {
            "name": self.name, "learning_rate": self.rates, "steps": self.steps,
            "milestones": self.milestones, "factor": self.factor,
        }  # fmt: skip


def decayed_rate(rate: tf.Tensor, decay: float, task: tf.Tensor) -> tf.Tensor:
    """max(rate decay^task, 5e-5), or the rate where that is lower.

    The stable training regime of Mirzadeh et al. (NeurIPS 2020).

    Args:
        rate: eta, a scalar.
        decay: gamma.
        task: k, the task's number from 1, an integer scalar.
    """
    factor = tf.constant(decay, rate.dtype) ** tf.cast(task, rate.dtype)
    return tf.maximum(rate * factor, tf.minimum(rate, tf.constant(LEAST_RATE, rate.dtype)))


def rate_after_steps(rate: tf.Tensor, decay: float, every: int, updates: tf.Tensor) -> tf.Tensor:
    """rate decay^floor(updates / every): TF1's `exponential_decay(..., staircase=True)`.

    The authors' A-GEM and ER have it with decay 0.65 and 3,100 steps, about two of their tasks
    (github.com/imirzadeh/stable-continual-learning, `learning_rate` in
    external_libs/continual_learning_algorithms/model/model.py, replicate_mnist_stable.sh).

    Args:
        rate: eta, a scalar.
        decay: gamma.
        every: Updates between two decays.
        updates: Updates so far, an integer scalar.
    """
    times = tf.cast(updates // tf.cast(every, updates.dtype), rate.dtype)
    return rate * tf.constant(decay, rate.dtype) ** times
