"""DER++ as a plugin: python run.py --plugin=examples/own_method.py --method=my_derpp

CE(J) + a MSE(h(x_I), z_I) + CE(I'), z the logits of when x_I was written (Buzzega et al., 2020).
"""

import keras
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.losses import weighted_mean


@keras.saving.register_keras_serializable(package="examples")
class MyDERpp(nccl_tf.ReplayLearner):
    log_names = ("loss", "logits_loss")
    replay_draws = 2

    def __init__(self, *args, logits_weight=0.5, **kwargs):
        super().__init__(*args, **kwargs)
        self.logits_weight = logits_weight

    @classmethod
    def memory_extras(cls, num_classes):
        return {"logits": ((num_classes,), "float32")}

    def replay_loss(self, logits, batch, *replays):
        (now, other), (stored, replay) = logits.memory, replays
        stream = weighted_mean(self.stream_losses(logits.stream, batch), batch.weights)
        squares = tf.reduce_mean(tf.square(now.raw - stored.extras["logits"]), axis=1)
        dark = weighted_mean(squares, stored.weights)
        labels = weighted_mean(self.memory_losses(other, replay), replay.weights)
        return stream + self.logits_weight * dark + labels, {"loss": stream, "logits_loss": dark}

    def store(self, batch, logits):
        super().store(batch._replace(extras={"logits": logits.raw}), logits)


WEIGHT = nccl_tf.Hyperparameter("logits_weight", "float", 0.5, ge=0.0, help="of the stored logits")
ROW = {"learner": MyDERpp, "memory": "reservoir", "hyperparameters": (WEIGHT,)}
nccl_tf.register_method(nccl_tf.Method(name="my_derpp", title="My DER++", **ROW))
