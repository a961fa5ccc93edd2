"""SI (Zenke, Poole and Ganguli, ICML 2017, "Continual learning through synaptic intelligence")."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.learner.penalties import PenaltyLearner
from nccl_tf.learner.step import Step
from nccl_tf.methods.rows import si as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class SI(PenaltyLearner):
    r"""Holds each weight by how much its way through the tasks before has lowered their losses.

    $x^+ = x - \alpha (g_J + 2 c \Omega (x - x^*))$, the gradient of the loss plus
    $c \sum_i \Omega_i (x_i - x^*_i)^2$, without the factor 1/2. Every step adds $-g_J (x^+ - x)$ to
    $\omega$, with $g_J$ the gradient without the penalty and $x^+ - x$ the whole movement, whatever
    the optimizer. At a task's end
    $\Omega \leftarrow \max(0, \Omega + \omega / ((x - x^*)^2 + \xi))$, $x^*$ are the weights, and
    $\omega$ begins again at 0. The first task has no penalty; its $x^*$ are the weights at its
    beginning.

    So the authors' code (pathint). Others cut each task's part at 0 in place of the sum (the code
    of A-GEM), cut nothing and take the gradient with the penalty (continual-learning, G. van de
    Ven), or add $\alpha g^2$ with that gradient, clipped to [-1, 1] (mammoth).

    Args:
        network: Any Keras model from inputs to one logit per class.
        si_c: $c$, weight of the penalty. A step contracts towards $x^*$ where
            $2 \alpha c \Omega < 2$.
        si_xi: $\xi$, keeps $\Omega$ finite for weights that hardly moved.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.SI(nccl_tf.networks.mlp((28, 28, 1), 10), si_c=0.1)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    one_pass = True

    def __init__(
        self,
        network: keras.Model,
        *,
        si_c: float = 0.1,
        si_xi: float = 0.1,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.si_c = si_c
        self.si_xi = si_xi
        self.importances = self.states_of_weights("importance")
        # A new weight has not moved yet.
        self.anchors = self.states_of_weights("anchor", grown="weights")
        self.contributions = self.states_of_weights("contribution")

    def learn(self, batch: Batch) -> Step:
        step = super().learn(batch)
        return self.penalized(step, self.si_c, state=step.gradients)

    def apply_step(self, step: Step) -> None:
        before = [tf.identity(v.value) for v in self.trainable_variables]
        super().apply_step(step)
        for contribution, gradient, weight, old in zip(
            self.contributions, step.state, self.trainable_variables, before, strict=True
        ):
            contribution.assign_sub(gradient * (weight.value - old))

    def on_task_begin(self, task_id: int) -> None:
        is_first = tf.equal(self.progress.tasks_ended.value, 0)
        for anchor, weight in zip(self.anchors, self.trainable_variables, strict=True):
            anchor.assign(tf.where(is_first, weight.value, anchor.value))

    def on_task_end(self, task_id: int) -> None:
        for importance, anchor, contribution, weight in zip(
            self.importances,
            self.anchors,
            self.contributions,
            self.trainable_variables,
            strict=True,
        ):
            moved = tf.square(weight.value - anchor.value)
            total = importance.value + contribution.value / (moved + self.si_xi)
            importance.assign(tf.nn.relu(total))
            anchor.assign(weight.value)
            contribution.assign(tf.zeros_like(contribution.value))
