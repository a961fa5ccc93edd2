"""DER, DER++ (Buzzega et al., NeurIPS 2020, "Dark experience for general continual learning")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner.columns import LOGITS, Column, raw_logits
from nccl_tf.learner.losses import weighted_mean
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logs, ReplayLogits
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.rows import der as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class DER(ExperienceReplay):
    """Replays the logits that the network gave when it met an example, and no labels.

    The loss of a step is CE(J) + a MSE(h(x), z) (eq. 5): cross-entropy on the stream batch J and,
    on a memory batch, the mean squared difference between logits h(x) before any mask, of the
    example's own head, and z, those of when x came. It is dark replay alone; `DERpp` adds labels.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir without shapes, or with `extras={"logits": ((classes,), "float32")}`.
        dark: a, weight of the logits.
        replay_labels: b, weight of the cross-entropy on the same memory batch.
        er_weighting: As for `ExperienceReplay`.
        batch_norm: As for `ReplayLearner`.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: A weight is below 0, both are 0, or the memory has no column for logits.

    Example:
        >>> import nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.DER(network, nccl_tf.ReservoirMemory(200))
    """

    columns: ClassVar[Mapping[str, Column]] = {LOGITS: raw_logits}

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        dark: float = 0.5,
        replay_labels: float = 0.0,
        er_weighting: str = "sum_of_means",
        batch_norm: str = "separate",
        **kwargs: Any,
    ):
        super().__init__(
            network, memory, dark=dark, replay_labels=replay_labels, er_weighting=er_weighting,
            batch_norm=batch_norm, **kwargs,
        )  # fmt: skip


@keras.saving.register_keras_serializable(package="nccl_tf")
class DERpp(ReplayLearner):
    """Replays labels, and the logits that the network gave when it met an example.

    The loss of a step is CE(J) + a MSE(h(x), z) + b CE(I') (eq. 6): cross-entropy on the stream
    batch J and on a memory batch I', and, on another memory batch I, the mean squared difference
    between logits h(x) before any mask, of the example's own head, and z, those of when x came.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir without shapes, or with `extras={"logits": ((classes,), "float32")}`.
        der_alpha: a, weight of the logits.
        der_beta: b, weight of the labels.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: A weight is below 0, or the memory has no column for logits.

    Example:
        >>> import nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.DERpp(network, nccl_tf.ReservoirMemory(200))
    """

    log_names: ClassVar[tuple[str, ...]] = ("loss", "memory_loss", "logits_loss")
    columns: ClassVar[Mapping[str, Column]] = {LOGITS: raw_logits}
    replay_draws = 2
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot = rows.DERPP.refuses

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        der_alpha: float = 0.5,
        der_beta: float = 0.5,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.der_alpha = der_alpha
        self.der_beta = der_beta

    def replay_loss(
        self, logits: ReplayLogits, batch: Batch, *replays: Batch
    ) -> tuple[tf.Tensor, Logs]:
        (now, labelled), (stored, replay) = logits.memory, replays
        stream_loss = self.stream_loss(logits.stream, batch)
        memory_loss = self.memory_loss(labelled, replay)
        logits_loss = weighted_mean(self.logit_distances(now.raw, stored), stored.weights)
        loss = stream_loss + self.der_alpha * logits_loss + self.der_beta * memory_loss
        return loss, {"loss": stream_loss, "memory_loss": memory_loss, "logits_loss": logits_loss}
