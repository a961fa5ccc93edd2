"""The training regime of Stable SGD (Mirzadeh et al., NeurIPS 2020), for any method."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.hyperparameters import RATE_DECAY
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Outcome
from nccl_tf.methods.agem import AGEM
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.finetune import Finetune

LEAST_RATE = 5e-5
"""The decay stops here."""


class StableTraining(Learner):
    """The part that the stable regime adds to a method: decay from task to task, fresh momentum.

    In task k (from 1) the learning rate is max(eta gamma^k, 5e-5), with eta the optimizer's
    (Mirzadeh et al., 2020, and its code, where the first task is decayed too); an eta below 5e-5
    is not raised. Optimizer and callbacks see eta: a step decays it, and puts it back when it is
    done. So what is saved or assigned between steps is eta, and nothing is ever decayed twice.
    SGD's momentum begins each task at zero. Momentum and dropout themselves are the optimizer's
    and the network's.

    Args:
        *args: As for the method.
        rate_decay: gamma, in (0, 1].
        **kwargs: As for the method.

    Raises:
        UserError: `rate_decay` is out of range; from `compile`, the optimizer's learning rate is a
            schedule.
    """

    on_replicas = False

    def __init__(self, *args: Any, rate_decay: float = 0.8, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.rate_decay = float(RATE_DECAY.check(rate_decay))

    def compile(self, optimizer: Any = "sgd", **kwargs: Any) -> None:
        """As `Learner.compile`; refuses a learning rate that is not a number."""
        super().compile(optimizer, **kwargs)
        if not isinstance(self.optimizer.learning_rate, keras.Variable):
            raise UserError(
                "received an optimizer with a learning rate schedule; a stable method decays the "
                "rate itself: give a number as learning rate, or choose the method without stable_"
            )

    def task_begins(self, task_id: int) -> None:
        super().task_begins(task_id)
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        for momentum in getattr(inner, "momentums", ()):
            momentum.assign(tf.zeros_like(momentum.value))

    def take_step(self, data: Any) -> Outcome:
        rate = self.optimizer.learning_rate
        given = tf.identity(rate.value)
        rate.assign(decayed_rate(given, self.rate_decay, self.tasks_ended.value + 1))
        outcome = super().take_step(data)
        rate.assign(given)
        return outcome

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "rate_decay": self.rate_decay}


def decayed_rate(rate: tf.Tensor, decay: float, task: tf.Tensor) -> tf.Tensor:
    """max(rate decay^task, 5e-5), or the rate where that is lower.

    Args:
        rate: eta, a scalar.
        decay: gamma.
        task: k, the task's number from 1, a whole-number scalar.
    """
    factor = tf.constant(decay, rate.dtype) ** tf.cast(task, rate.dtype)
    return tf.maximum(rate * factor, tf.minimum(rate, tf.constant(LEAST_RATE, rate.dtype)))


@keras.saving.register_keras_serializable(package="nccl_tf")
class StableSGD(StableTraining, Finetune):
    """x+ = x - eta_k g_J with a learning rate that falls from task to task; no memory."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class StableAGEM(StableTraining, AGEM):
    """A-GEM's projected step with a learning rate that falls from task to task."""

    def __init__(self, *args: Any, rate_decay: float = 0.65, **kwargs: Any):
        super().__init__(*args, rate_decay=rate_decay, **kwargs)


@keras.saving.register_keras_serializable(package="nccl_tf")
class StableER(StableTraining, ExperienceReplay):
    """Experience replay with a learning rate that falls from task to task."""

    def __init__(self, *args: Any, rate_decay: float = 0.65, **kwargs: Any):
        super().__init__(*args, rate_decay=rate_decay, **kwargs)
