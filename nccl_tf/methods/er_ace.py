"""ER-ACE (Caccia et al., ICLR 2022, "New insights on reducing abrupt representation change")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras

from nccl_tf.memories.memory import Memory
from nccl_tf.methods.er import ExperienceReplay


@keras.saving.register_keras_serializable(package="nccl_tf")
class ERACE(ExperienceReplay):
    """Experience replay with asymmetric cross-entropy: new classes do not push old ones away.

    The loss of a step is $L(J; C_J) + L(I; C)$: on the stream batch $J$ the softmax runs over the
    classes $C_J$ of the batch alone, so that the logits of absent classes get no gradient from it;
    on the memory batch $I$ it runs over all classes $C$ (section 4.1 of the paper, as Avalanche has
    it but for its factor 1/2). A stream batch of one class, such as one of one example, so has no
    loss. The authors' code takes $C_J$ and every class above the largest seen so far on the stream
    batch; these are the unseen classes only where classes come in the order of their numbers. It
    also ends the network in a cosine layer, 10 cos(z, w) without a bias. Neither is offered here.

    Args:
        network: Any Keras model from inputs to one logit per class, behind a single head.
        memory: One that reads examples of the open task too, such as a reservoir: they compare new
            classes with old ones, which the stream's loss does not.
        stream_mask: As for `Learner`; "all" gives experience replay.
        er_weighting: As for `ExperienceReplay`.
        batch_norm: As for `ReplayLearner`.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: There are heads, whose masks leave nothing to this one, or the memory reads ended
            tasks alone.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ReservoirMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.ERACE(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    cannot: ClassVar[Mapping[str, str]] = {
        "heads": "masks the classes that a batch lacks, where a head is the mask already"
    }

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        stream_mask: str = "present",
        er_weighting: str = "sum_of_means",
        batch_norm: str = "separate",
        **kwargs: Any,
    ):
        super().__init__(
            network, memory, stream_mask=stream_mask, er_weighting=er_weighting,
            batch_norm=batch_norm, **kwargs,
        )  # fmt: skip
