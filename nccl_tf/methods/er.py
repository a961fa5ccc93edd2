"""Experience replay (Chaudhry et al., 2019, "On tiny episodic memories in continual learning")."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch, joined
from nccl_tf.errors import UserError
from nccl_tf.hyperparameters import ER_WEIGHTING
from nccl_tf.learner.dense_gradients import RowDirection
from nccl_tf.learner.learner import Step
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.memories.base import Memory


@keras.saving.register_keras_serializable(package="nccl_tf")
class ExperienceReplay(ReplayLearner):
    """One gradient step on the stream batch and a memory batch together.

    x+ = x - alpha (b_I f_I + b_J g_J)/(b_I + b_J) with b the numbers of examples, or
    x+ = x - alpha (f_I + g_J) with `er_weighting="sum_of_means"`.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring (ER-Ring) or a reservoir (ER-Reservoir).
        er_weighting: "joint_mean" or "sum_of_means".
        batch_norm: As for `ReplayLearner`; by default the batches are normalised jointly.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: `er_weighting` is unknown.
    """

    quantities = ("loss", "memory_loss")
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
        super().__init__(network, memory, batch_norm=batch_norm, **kwargs)
        self.er_weighting = ER_WEIGHTING.check(er_weighting)
        if self.replicas is not None and er_weighting != "joint_mean":
            raise UserError(
                f"er_weighting={er_weighting!r} runs on one replica only: take joint_mean under a "
                "tf.distribute strategy"
            )

    def learn_both(self, batch: Batch, replay: Batch) -> Step:
        everyone, rows = joined(replay, batch), tf.shape(replay.labels)[-1]

        def loss_of(logits: tf.Tensor) -> tuple[tf.Tensor, Any]:
            memory_loss = self.mean_loss(logits[..., :rows, :], replay)
            stream_loss = self.mean_loss(logits[..., rows:, :], batch)
            if self.er_weighting == "sum_of_means":
                loss = memory_loss + stream_loss
            else:
                loss = self.mean_loss(logits, everyone)
            return loss, (logits[..., rows:, :], {"loss": stream_loss, "memory_loss": memory_loss})

        if self._chain is not None:
            inputs, slopes, found = self._chain.slopes(
                everyone.inputs,
                lambda logits: loss_of(self.masked_jointly(logits, batch, replay)),
            )
            return self.step(RowDirection(self._chain.factors(inputs, slopes)), *found)
        with tf.GradientTape() as tape:
            loss, found = loss_of(self.joint_logits(batch, replay))
            scaled = self.scaled(loss + self.regularization())
        return self.step(self.gradients(tape, scaled), *found)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "er_weighting": self.er_weighting}
