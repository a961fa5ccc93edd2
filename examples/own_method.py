"""DER++ as a plugin: python run.py --plugin=examples/own_method.py --method=my_derpp"""

import keras

import nccl_tf

WEIGHT = nccl_tf.Hyperparameter("logits_weight", "float", 0.5, ge=0.0, help="of the stored logits")


@keras.saving.register_keras_serializable(package="examples")
class MyDERpp(nccl_tf.ReplayLearner):
    """CE(J) + a MSE(h(x_I), z_I) + CE(I'), z the logits of when x_I came (Buzzega et al., 2020).

    Example:
        >>> memory = nccl_tf.ReservoirMemory(500)
        >>> learner = MyDERpp(nccl_tf.networks.mlp((28, 28, 1), 10), memory, logits_weight=1.0)
    """

    log_names = ("loss", "logits_loss")
    columns = {"logits": lambda logits, batch: logits.raw}
    replay_draws = 2
    hyperparameters = (WEIGHT,)

    def replay_loss(self, logits, batch, stored, replay):
        now, other = logits.memory
        dark = nccl_tf.weighted_mean(self.logit_distances(now.raw, stored), stored.weights)
        stream = self.stream_loss(logits.stream, batch)
        loss = stream + self.logits_weight * dark + self.memory_loss(other, replay)
        return loss, {"loss": stream, "logits_loss": dark}


ROW = {"learner": MyDERpp, "memory": "reservoir"}
nccl_tf.register_method(nccl_tf.Method(name="my_derpp", title="My DER++", **ROW))
