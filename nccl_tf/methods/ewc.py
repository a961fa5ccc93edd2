"""Elastic weight consolidation (Kirkpatrick et al., PNAS 2017), in the form of the paper's code."""

from typing import Any, Unpack

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import (
    EWC_ESTIMATE,
    EWC_LAMBDA,
    EWC_WINDOW,
)
from nccl_tf.batch import Batch
from nccl_tf.gradients import Gradients
from nccl_tf.learner.arguments import LearnerArguments
from nccl_tf.learner.fitting.hints import hint_of_short_task
from nccl_tf.learner.gradients.dense_chain import gradient_size
from nccl_tf.learner.quadratic_penalty import PenaltyLearner
from nccl_tf.learner.step import Step
from nccl_tf.networks.inspection import has_convolutions

NEWEST = 0.9
r"""Weight of the newest window in the running Fisher information ($\gamma_F$)."""


def normalized(fisher: Gradients) -> list[tf.Tensor]:
    r"""$(F - \min F)/(\max F - \min F)$, over all entries of all tensors; zeros where all agree."""
    least = tf.reduce_min(tf.stack([tf.reduce_min(f) for f in fisher]))
    most = tf.reduce_max(tf.stack([tf.reduce_max(f) for f in fisher]))
    return [tf.math.divide_no_nan(f - least, most - least) for f in fisher]


def merge_penalties(
    fisher: tf.Tensor, anchor: tf.Tensor, new_fisher: tf.Tensor, new_anchor: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The sum of two penalties $F (x - a)^2$ as one of that form: $F$, $a$ and the constant left
    over.

    $F (x-a)^2 + G (x-b)^2 = (F+G) (x-c)^2 + FG/(F+G) (a-b)^2$ with $c$ the mean of $a$ and $b$
    weighted by $F$ and $G$. So any number of tasks takes the space of one.

    Args:
        fisher: $F$, of any shape, not negative.
        anchor: a, of the same shape.
        new_fisher: G.
        new_anchor: b.
    """
    both = fisher + new_fisher
    share = tf.math.divide_no_nan(new_fisher, both)
    left_over = tf.reduce_sum(fisher * share * tf.square(new_anchor - anchor))
    return both, anchor + share * (new_anchor - anchor), left_over


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
        ewc: "online", the penalty of the latest task alone; "separate", the sum of the penalties of
            all tasks, each with its own $F$ and $x^*$; "per_example", online with the mean of the
            squared gradients of single examples, which the square of their mean underestimates
            about by the batch size.
        ewc_lambda: $\lambda$, weight of the penalty. A step contracts towards $x^*$ where
            $2 \alpha \lambda F < 2$; with "separate", $F$ sums up over the tasks.
        ewc_window: u, in steps; None for 10, or 50 where the network has convolutions.
        **kwargs: As for `Learner`.

    Raises:
        UserError: `ewc` is unknown, or a number is out of range.
    """

    fast_paths = ("deferred_logs",)

    def __init__(
        self,
        network: keras.Model,
        *,
        ewc: str = "online",
        ewc_lambda: float = 10.0,
        ewc_window: int | None = None,
        **kwargs: Unpack[LearnerArguments],
    ):
        super().__init__(network, **kwargs)
        self.ewc = EWC_ESTIMATE.check(ewc)
        self.ewc_lambda = float(EWC_LAMBDA.check(ewc_lambda))
        self.ewc_window = EWC_WINDOW.check(ewc_window)
        variables = network.trainable_variables
        self._steps_per_window = self.ewc_window or (50 if has_convolutions(network) else 10)
        self.importances = self.states_of_weights("fisher")
        self.anchors = self.states_of_weights("anchor")
        self.running = self.states_of_weights("running_fisher")
        self.window_sums = self.states_of_weights("window_sum")
        dtype = variables[0].dtype if variables else keras.config.floatx()
        self.left_over = self._state("left_over", (), dtype, 0)
        self.task_steps = self._state("task_steps", (), "int32", 0)

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        if self.ewc == "per_example":
            step, squares = self._learn_each(batch)
        else:
            step = super().learn(batch)
            squares = [tf.square(g) for g in step.gradients]
        return self.penalized(step, self.ewc_lambda, squares, constant=self.left_over.value)

    def _learn_each(self, batch: Batch) -> tuple[Step, list[tf.Tensor]]:
        """A plain step, and the mean over the batch of the examples' squared gradients."""
        with tf.GradientTape(persistent=True) as tape:
            logits = self.forward(batch, training=True)
            losses = self.stream_losses(logits, batch)
            # Examples of weight 0 are padding, whose loss may be anything.
            losses = self.scaled(tf.where(batch.weights > 0, losses, 0))
            loss, logs = self.training_loss(logits, batch)
            scaled = self.scaled(loss + self.regularization())
        weights = [variable.value for variable in self.trainable_variables]
        jacobians = tape.jacobian(
            losses, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        scale = 1.0 if self.loss_scale() is None else self.loss_scale()
        squares = [
            _mean_by_weights(tf.square(j / tf.cast(scale, j.dtype)), batch.weights)
            for j in jacobians
        ]
        # Where a single example overflows float16 and their mean does not, the step is skipped too.
        finite = tf.math.is_finite(gradient_size(squares))
        logs = {**logs, "loss": tf.where(finite, logs["loss"], float("nan"))}
        return Step(self.gradients(tape, scaled), logits, logs), squares

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
        super().on_task_begin(task_id)
        self.task_steps.assign(0)
        # A Fisher information of its own starts again at zero; the reference's goes on.
        for variable in [*self.window_sums, *(self.running if self.ewc == "separate" else ())]:
            variable.assign(tf.zeros_like(variable.value))

    def on_task_end(self, task_id: int) -> None:
        super().on_task_end(task_id)
        hint_of_short_task(self, int(self.task_steps.numpy()), self._steps_per_window)
        fisher = normalized([f.value for f in self.running])
        for old, anchor, new, weights in zip(
            self.importances, self.anchors, fisher, self.trainable_variables, strict=True
        ):
            target = weights.value
            if self.ewc == "separate":
                new, target, left_over = merge_penalties(old.value, anchor.value, new, target)
                self.left_over.assign_add(left_over)
            old.assign(new)
            anchor.assign(target)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "ewc": self.ewc,
            "ewc_lambda": self.ewc_lambda,
            "ewc_window": self.ewc_window,
        }


def _mean_by_weights(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The mean of values [n, ...] by weights [n], [...]; 0 where all weights are."""
    weights = tf.cast(weights, values.dtype)
    by_row = tf.reshape(weights, [-1, *([1] * (values.shape.rank - 1))])
    return tf.math.divide_no_nan(tf.reduce_sum(values * by_row, axis=0), tf.reduce_sum(weights))
