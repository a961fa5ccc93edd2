"""Fine-tuning: plain training on the stream."""

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.learner import Learner, Step


@keras.saving.register_keras_serializable(package="nccl_tf")
class Finetune(Learner):
    """x+ = x - alpha g_J: the lower bound of the paper's tables, without a memory."""

    on_replicas = True

    def learn(self, batch: Batch) -> Step:
        return self.learn_stream(batch)


@keras.saving.register_keras_serializable(package="nccl_tf")
class MultiTask(Finetune):
    """x+ = x - alpha g_J on the union of the tasks, every logit in the training loss.

    The protocol of the A-GEM code base (Chaudhry et al., ICLR 2019): with a multi-head the mask of
    the task holds at test only, so that all classes compete in training.
    """

    on_replicas = False

    def logits(self, batch: Batch, training: bool) -> tf.Tensor:
        """Logits [n, classes] of a batch as the training loss sees them: never masked."""
        return at_least_float32(self.outputs(batch.inputs, batch.tasks, training))
