"""MAS (Aljundi et al., ECCV 2018, "Memory aware synapses: learning what (not) to forget")."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner import stateless
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.penalties import SampledPenaltyLearner
from nccl_tf.learner.step import Step
from nccl_tf.methods.rows import mas as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class MAS(SampledPenaltyLearner):
    r"""Holds each weight by how much the outputs for the tasks before change with it.

    $x^+ = x - \alpha (g_J + 2 \lambda \Omega (x - x^*))$, the gradient of the loss plus
    $\lambda \sum_i \Omega_i (x_i - x^*_i)^2$. At a task's end $\Omega$ grows by the mean over its
    examples of $|\partial \|z\|^2/\partial x|$, with $z$ the network's outputs before any mask and
    fixed batch-norm statistics, and $x^*$ are the weights; with a target at each place $\|z\|^2$ is
    a mean over the places by their weights. Labels have no part in it. Multi-head: $z$ are the
    outputs of the task's own head; with a single head those of all classes. The first task has no
    penalty.

    So the authors' code with `b1`, its form for streams: a batch is one example, as in the paper.
    It passes over the whole task; here the mean is over a uniform sample of it, and over the whole
    where `importance_examples` are enough. Their batches of 200 let signs cancel. Others keep
    $\Omega$ of the last task alone (the code of A-GEM), or take $\|z\|$ and half of $\Omega$
    (Avalanche).

    Args:
        network: Any Keras model from inputs of fixed shape to one output per class.
        mas_lambda: $\lambda$, weight of the penalty. A step contracts towards $x^*$ where
            $2 \alpha \lambda \Omega < 2$; $\Omega$ sums up over the tasks. The authors have 1 with
            smaller rates than those of MNIST here, the code of A-GEM 0.1 with an $\Omega$ of the
            last task.
        **kwargs: As for `learner.penalties.SampledPenaltyLearner`.

    Raises:
        UserError: A number is out of range, or a side of the network's inputs is unknown.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.MAS(nccl_tf.networks.mlp((28, 28, 1), 10), mas_lambda=0.1)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS

    def __init__(
        self,
        network: keras.Model,
        *,
        mas_lambda: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.mas_lambda = mas_lambda

    def learn(self, batch: Batch) -> Step:
        return self.penalized(super().learn(batch), self.mas_lambda)

    def example_importances(self, example: Batch) -> list[tf.Tensor]:
        def squared_length() -> tf.Tensor:
            outputs = at_least_float32(self.forward(example, training=False).raw)
            if self.heads is not None:
                outputs = tf.where(self.heads.of(example.tasks), outputs, 0)
            squares = tf.reduce_sum(tf.square(outputs), axis=-1)
            return self.example_loss.over_places(squares, example.labels, example.place_weights)[0]

        return [tf.abs(g) for g in stateless.finite_gradients(self, squared_length)[0]]
