"""Experience replay (Chaudhry et al., 2019, "On tiny episodic memories in continual learning")."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logs, ReplayLogits
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import er as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class ExperienceReplay(ReplayLearner):
    r"""One gradient step on the stream batch and a memory batch together.

    $x^+ = x - \alpha (b_I f_I + b_J g_J)/(b_I + b_J)$ with $b$ the numbers of examples, or
    $x^+ = x - \alpha (f_I + g_J)$ with `er_weighting="sum_of_means"`.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring (ER-Ring) or a reservoir (ER-Reservoir).
        er_weighting: "joint_mean" or "sum_of_means".
        batch_norm: As for `ReplayLearner`; by default the batches are normalised jointly.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: `er_weighting` is unknown.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ReservoirMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.ExperienceReplay(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    log_names = ("loss", "memory_loss")
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    on_replicas = True

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        er_weighting: str = "joint_mean",
        batch_norm: str = "joint",
        **kwargs: Any,
    ):
        self.er_weighting = er_weighting
        super().__init__(network, memory, batch_norm=batch_norm, **kwargs)

    def replay_loss(
        self, logits: ReplayLogits, batch: Batch, *replays: Batch
    ) -> tuple[tf.Tensor, Logs]:
        loss, logs = super().replay_loss(logits, batch, *replays)
        if self.er_weighting == "sum_of_means":
            loss = logs["memory_loss"] + logs["loss"]
        return loss, logs
