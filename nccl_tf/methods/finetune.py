"""Plain training: on the stream alone, or on all tasks at once."""

from collections.abc import Mapping
from typing import ClassVar

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.learner import Learner


@keras.saving.register_keras_serializable(package="nccl_tf")
class Finetune(Learner):
    r"""Steps on the stream batch alone, $x^+ = x - \alpha g_J$, without a memory.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.Finetune(nccl_tf.networks.mlp((28, 28, 1), 10))
    """

    on_replicas = True
    one_pass = True


@keras.saving.register_keras_serializable(package="nccl_tf")
class MultiTask(Learner):
    r"""Steps on the union of the tasks, $x^+ = x - \alpha g_J$, every logit in the training loss.

    The protocol of the A-GEM code base (Chaudhry et al., ICLR 2019): with a multi-head the mask of
    the task holds at test only, so that all classes compete in training.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.MultiTask(nccl_tf.networks.mlp((28, 28, 1), 10))
    """

    one_pass = True
    cannot: ClassVar[Mapping[str, str]] = {"single_tasks": "learns all tasks at once"}

    def masked(self, logits: tf.Tensor, batch: Batch) -> tf.Tensor:
        """Logits [n, classes] of a batch as the training loss sees them: never masked."""
        return at_least_float32(logits)
