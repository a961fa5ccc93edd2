"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017), in the form of the paper's code."""

from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.gradients import Gradients
from nccl_tf.learner.penalties import PenaltyLearner
from nccl_tf.learner.step import Step
from nccl_tf.methods.rows import ewc as rows
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.variables import assign_all, values_of

NEWEST = 0.9
r"""Weight of the newest window in the running Fisher information ($\gamma_F$)."""


def normalized(fisher: Gradients) -> list[tf.Tensor]:
    r"""$(F - \min F)/(\max F - \min F)$, over all entries of all tensors; zeros where all agree."""
    least = tf.reduce_min(tf.stack([tf.reduce_min(f) for f in fisher]))
    most = tf.reduce_max(tf.stack([tf.reduce_max(f) for f in fisher]))
    return [tf.math.divide_no_nan(f - least, most - least) for f in fisher]


@keras.saving.register_keras_serializable(package="nccl_tf")
class EWC(PenaltyLearner):
    r"""Holds the weights near those of the tasks before, each by its Fisher information.

    $x^+ = x - \alpha (g_J + 2 \lambda F (x - x^*))$, the gradient of the loss plus
    $\lambda \sum_i F_i (x_i - x^*_i)^2$, without the factor 1/2. The first task has no penalty.

    $F$ is estimated while a task is learned. Squares of the stream gradient $g_J$, at the weights
    before each update, are summed over windows of u steps; when a window is full,
    $F \leftarrow 0.1 F + 0.9/u$ times its sum. As in the reference code (Chaudhry et al., 2020) a
    window is closed one step early, before the step's own square is added: the first of a task
    holds u - 1. At the task's end $F$ is brought to [0, 1] over all weights, and $x^*$ are the
    weights.

    Args:
        network: Any Keras model from inputs to one logit per class.
        ewc_lambda: $\lambda$, weight of the penalty. A step contracts towards $x^*$ where
            $2 \alpha \lambda F < 2$.
        ewc_window: u, in steps; None for 10, or 50 where the network has convolutions.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.EWC(nccl_tf.networks.mlp((28, 28, 1), 10), ewc_lambda=10.0)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS

    def __init__(
        self,
        network: keras.Model,
        *,
        ewc_lambda: float = 10.0,
        ewc_window: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.ewc_lambda = ewc_lambda
        self.ewc_window = ewc_window
        self._steps_per_window = self.ewc_window or (50 if has_convolutions(network) else 10)
        self.importances = self.states_of_weights("fisher")
        self.anchors = self.states_of_weights("anchor")
        self.running = self.states_of_weights("running_fisher")
        self.window_sums = self.states_of_weights("window_sum")
        self.task_steps = self.state("task_steps", (), "int64")

    def learn(self, batch: Batch) -> Step:
        step = super().learn(batch)
        squares = [tf.square(g) for g in step.gradients]
        return self.penalized(step, self.ewc_lambda, squares)

    def apply_step(self, step: Step) -> None:
        full = self.task_steps.value.assign_add(1) % self._steps_per_window == 0
        tf.cond(full, self._close_window, lambda: None)
        for window, square in zip(self.window_sums, step.state, strict=True):
            window.value.assign_add(square)
        super().apply_step(step)

    def _close_window(self) -> None:
        newest = NEWEST / self._steps_per_window
        for running, window in zip(self.running, self.window_sums, strict=True):
            running.assign((1 - NEWEST) * running.value + newest * window.value)
            window.assign(tf.zeros_like(window.value))

    def on_task_begin(self, task_id: int) -> None:
        self.task_steps.assign(0)
        # The running Fisher information continues, as in the reference.
        for window in self.window_sums:
            window.assign(tf.zeros_like(window.value))

    def on_task_end(self, task_id: int) -> None:
        # A graph, of a file for a device, does not know them.
        steps = tf.get_static_value(self.task_steps.value.read_value())
        window = self._steps_per_window
        if steps is not None and steps < window:
            self.warn_once(
                "window",
                f"the task had {steps} step{'s' * bool(steps != 1)}, fewer than the {window} of a "
                "window of EWC, which has measured nothing in it: name a smaller ewc_window, or "
                "take smaller batches or more epochs",
            )
        fisher = normalized([f.value for f in self.running])
        assign_all(self.importances, fisher)
        assign_all(self.anchors, values_of(self.trainable_variables))
