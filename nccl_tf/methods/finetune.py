"""Fine-tuning: plain training on the stream."""

import keras

from nccl_tf.batch import Batch
from nccl_tf.learner.learner import Learner, Step


@keras.saving.register_keras_serializable(package="nccl_tf")
class Finetune(Learner):
    """x+ = x - alpha g_J: the lower bound of the paper's tables, without a memory."""

    on_replicas = True

    def learn(self, batch: Batch) -> Step:
        return self.learn_stream(batch)
