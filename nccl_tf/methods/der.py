"""DER (Buzzega et al., NeurIPS 2020, "Dark experience for general continual learning")."""

from typing import ClassVar, Unpack

import keras

from nccl_tf.learner.arguments import OwnDarkReplayArguments
from nccl_tf.learner.options.dark_replay import logits_column
from nccl_tf.memories.base import Memory
from nccl_tf.methods.er import ExperienceReplay


@keras.saving.register_keras_serializable(package="nccl_tf")
class DER(ExperienceReplay):
    """Replays the logits that the network gave when it met an example, and no labels.

    The loss of a step is CE(J) + a MSE(h(x), z) (eq. 5): cross-entropy on the stream batch J and,
    on a memory batch, the mean squared difference between logits h(x) before any mask, of the
    example's own head, and z, those of when x came. It is dark replay alone; `DERpp` adds labels.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir with the column of `memory_extras`, or without shapes.
        dark: a, weight of the logits.
        replay_labels: b, weight of the cross-entropy on the same memory batch.
        er_weighting: As for `ExperienceReplay`.
        batch_norm: As for `ReplayLearner`.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: A weight is below 0, both are 0, or the memory has no column for logits.

    Example:
        >>> import nccl_tf
        >>> extras = nccl_tf.DER.memory_extras(num_classes=10)
        >>> memory = nccl_tf.ReservoirMemory(200, (28, 28, 1), extras=extras)
        >>> learner = nccl_tf.DER(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    on_replicas = False
    fast_paths: ClassVar[tuple[str, ...]] = ("deferred_logs", "dense")

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        dark: float = 0.5,
        replay_labels: float = 0.0,
        er_weighting: str = "sum_of_means",
        batch_norm: str = "separate",
        **kwargs: Unpack[OwnDarkReplayArguments],
    ):
        super().__init__(
            network, memory, dark=dark, replay_labels=replay_labels, er_weighting=er_weighting,
            batch_norm=batch_norm, **kwargs,
        )  # fmt: skip

    @classmethod
    def memory_extras(cls, num_classes: int) -> dict[str, tuple[tuple[int, ...], str]]:
        return logits_column(num_classes)

    def check_columns(self) -> None:
        """Nothing: a memory needs the column where `dark` is above 0, and is asked for it there."""
