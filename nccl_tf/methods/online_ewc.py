"""Online EWC (Schwarz et al., ICML 2018, "Progress & Compress"), as the code of the DER paper."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner import stateless
from nccl_tf.learner.penalties import SampledPenaltyLearner
from nccl_tf.learner.step import Step
from nccl_tf.methods.rows import online_ewc as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class OnlineEWC(SampledPenaltyLearner):
    r"""Holds the weights near those of the task before, each by its Fisher information so far.

    $x^+ = x - \alpha (g_J + 2 \lambda F (x - x^*))$, the gradient of the loss plus
    $\lambda \sum_i F_i (x_i - x^*_i)^2$. At a task's end $F \leftarrow \gamma F$ + the mean over
    its examples of $p(y \mid x) (\partial \log p(y \mid x)/\partial x)^2$, with $y$ the label and
    fixed batch-norm statistics, and $x^*$ are the weights. Multi-head: $p$ is the softmax of the
    example's own head. The first task has no penalty.

    So the code of Buzzega et al. (2020), mammoth, which passes over the whole task, and in training
    mode, so that each example has batch-norm statistics of its own and moves the moving ones; here
    the mean is over a uniform sample of it, and over the whole where `importance_examples` are
    enough. The code of G. van de Ven has the penalty $1/2 \lambda \gamma F (x - x^*)^2$, as the
    paper, and $F$ as the mean over labels by the probabilities that the network gives them. `EWC`
    here is another form: squares of whole batches' gradients while the task is learned, brought to
    [0, 1], of the latest task alone.

    Args:
        network: Any Keras model from inputs of fixed shape to one logit per class.
        ewc_lambda: $\lambda$, weight of the penalty. A step contracts towards $x^*$ where
            $2 \alpha \lambda F < 2$.
        ewc_gamma: $\gamma$, share of $F$ that is left when another task ends.
        **kwargs: As for `learner.penalties.SampledPenaltyLearner`.

    Raises:
        UserError: A number is out of range, or a side of the network's inputs is unknown.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.OnlineEWC(nccl_tf.networks.mlp((28, 28, 1), 10), ewc_lambda=0.7)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "loss": "measures by the probability of an example's label"
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        ewc_lambda: float = 0.7,
        ewc_gamma: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.ewc_lambda = ewc_lambda
        self.ewc_gamma = ewc_gamma
        self.kept = self.ewc_gamma

    def learn(self, batch: Batch) -> Step:
        return self.penalized(super().learn(batch), self.ewc_lambda)

    def example_importances(self, example: Batch) -> list[tf.Tensor]:
        def loss_of() -> tf.Tensor:
            return self.example_loss.of(self.forward(example, training=False).masked, example)[0]

        gradients, loss = stateless.finite_gradients(self, loss_of)
        probability = tf.exp(-loss)
        return [tf.cast(probability, g.dtype) * tf.square(g) for g in gradients]
