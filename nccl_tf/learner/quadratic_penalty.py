"""What the methods share that hold each weight near an anchor: EWC, SI, MAS."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.gradients import Gradients
from nccl_tf.learner.growth import Growth
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Step


def distance(weights: Gradients, importances: Gradients, anchors: Gradients) -> tf.Tensor:
    r"""$\sum_i F_i (x_i - x^*_i)^2$ over all entries of lists of tensors of equal shapes: a
    scalar."""
    parts = zip(weights, importances, anchors, strict=True)
    return tf.add_n([tf.reduce_sum(f * tf.square(x - a)) for x, f, a in parts])


class PenaltyLearner(Learner):
    r"""$x^+ = x - \alpha (g_J + 2 c F (x - x^*))$: the loss plus $c \sum_i F_i (x_i - x^*_i)^2$.

    A subclass makes the lists `importances` ($F$) and `anchors` ($x^*$) with `states_of_weights`.

    Args:
        network: Any Keras model from inputs to one logit per class.
        **kwargs: As for `Learner`.
    """

    log_names: ClassVar[tuple[str, ...]] = ("loss", "penalty")
    keeps_by_weight = True

    importances: list[keras.Variable]
    anchors: list[keras.Variable]

    def states_of_weights(self, name: str, grown: float | None = 0.0) -> list[keras.Variable]:
        """A variable of zeros for each trainable variable, of its shape; they grow with the head.

        Args:
            name: Prefix of their names.
            grown: What a new entry holds; None for what the weight holds.
        """
        weights = self.network.trainable_variables
        states = [self._state(f"{name}_{i}", v.shape, v.dtype, 0) for i, v in enumerate(weights)]
        self._grown = [*getattr(self, "_grown", []), (states, grown)]
        return states

    def grow_state(self, growth: Growth) -> None:
        super().grow_state(growth)
        for states, grown in self._grown:
            growth.per_weight(states, fill=grown)

    def penalized(self, step: Step, strength: float, state: Any = ()) -> Step:
        """A step with the penalty in its gradients and its logs.

        Args:
            step: Of the loss alone.
            strength: c.
            state: As `Step.state`.
        """
        importances = [f.value for f in self.importances]
        anchors = [a.value for a in self.anchors]
        weights = [v.value for v in self.trainable_variables]
        penalty = strength * distance(weights, importances, anchors)
        gradients = [
            g + 2 * strength * f * (x - a)
            for g, f, x, a in zip(step.gradients, importances, weights, anchors, strict=True)
        ]
        return Step(gradients, step.logits, {**step.logs, "penalty": penalty}, state=state)
