"""A learning rate that falls from task to task, or after some steps."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import RATE_DECAY, RATE_DECAY_STEPS
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Step
from nccl_tf.learner.task_schedule import decayed_rate, rate_after_steps


class RateDecay(Option):
    """Puts the decayed rate into the optimizer for the time of a step.

    The momentum of SGD begins each task at zero. A schedule of Keras such as `TaskSchedule` cannot
    do this: it sees the number of updates alone, and has to know beforehand how many a task takes,
    while a stream tells a task's end when it comes. Nor could the rate be set between steps, as
    callbacks do.

    Args:
        rate_decay: gamma, in (0, 1].
        rate_decay_steps: Updates between two decays; None for a decay by tasks.
        tasks_ended: int64, the learner's variable of the tasks that have ended.

    Raises:
        UserError: A number is out of range, or there is no gamma.
    """

    on_replicas = False

    def __init__(
        self, rate_decay: float | None, rate_decay_steps: int | None, tasks_ended: keras.Variable
    ):
        if rate_decay is None:
            raise UserError(
                f"received rate_decay_steps={rate_decay_steps} without rate_decay, the factor by "
                "which the rate falls: pass rate_decay too, or leave rate_decay_steps out"
            )
        self.rate_decay = RATE_DECAY.check(rate_decay)
        self.rate_decay_steps = RATE_DECAY_STEPS.check(rate_decay_steps)
        self._tasks_ended = tasks_ended
        self._optimizer: Any = None

    @classmethod
    def of(
        cls, rate_decay: float | None, rate_decay_steps: int | None, tasks_ended: keras.Variable
    ) -> "RateDecay | None":
        """As the constructor; None without arguments."""
        if rate_decay is None and rate_decay_steps is None:
            return None
        return cls(rate_decay, rate_decay_steps, tasks_ended)

    def on_compile(self, optimizer: Any, loss: ExampleLoss) -> None:
        """Keep the optimizer.

        Raises:
            UserError: It has a schedule.
        """
        if not isinstance(optimizer.learning_rate, keras.Variable):
            raise UserError(
                "received an optimizer with a learning rate schedule and a rate_decay, which "
                "decays the rate itself: give a number as learning rate, or leave rate_decay out"
            )
        self._optimizer = optimizer

    @property
    def _inner(self) -> Any:
        return getattr(self._optimizer, "inner_optimizer", self._optimizer)

    def rate(self) -> tf.Tensor:
        """The decayed rate of the step that comes, before `before_step`. Graph code."""
        eta = tf.identity(self._optimizer.learning_rate.value)
        if self.rate_decay_steps is None:
            return decayed_rate(eta, self.rate_decay, self._tasks_ended.value + 1)
        updates = self._inner.iterations.value
        return rate_after_steps(eta, self.rate_decay, self.rate_decay_steps, updates)

    def before_step(self, batch: Batch) -> tf.Tensor:
        """Decay the rate; returns eta, the one that was given."""
        eta = tf.identity(self._optimizer.learning_rate.value)
        self._optimizer.learning_rate.assign(self.rate())
        return eta

    def after_step(self, batch: Batch, step: Step, note: tf.Tensor) -> None:
        self._optimizer.learning_rate.assign(note)

    def on_task_begin(self, task_id: int) -> None:
        for momentum in getattr(self._inner, "momentums", ()):
            momentum.assign(tf.zeros_like(momentum.value))

    def get_config(self) -> dict[str, Any]:
        return {"rate_decay": self.rate_decay, "rate_decay_steps": self.rate_decay_steps}
