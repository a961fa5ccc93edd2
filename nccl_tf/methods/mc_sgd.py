"""MC-SGD (Mirzadeh et al., ICLR 2021, "Linear mode connectivity in multitask and CL")."""

from collections.abc import Callable
from typing import Any, Unpack

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import (
    LINE_GRADIENT,
    LINE_POINTS,
    LINE_RATE,
    LINE_START,
    LINE_STEPS,
)
from nccl_tf.batch import Batch, concat_batches
from nccl_tf.gradients import lerp
from nccl_tf.learner.arguments import OwnRateDecayArguments
from nccl_tf.learner.gradients.functional import (
    current_weights,
    gradient_at,
    sgd_update,
)
from nccl_tf.learner.growth import Growth
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Step
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.registry import get_method
from nccl_tf.networks.layers import without_dropout

MOMENTUM = 0.8
"""Of the descent that merges two solutions."""

LEAST_STEPS = 20
"""Of that descent: it begins far from what the task has learned, and few examples may be stored."""

Weights = list[tf.Tensor]


@keras.saving.register_keras_serializable(package="nccl_tf")
class MCSGD(ReplayLearner):
    r"""Trains each task alone, then merges what came out with what there was before.

    Task $k$ is learned by the stable regime from the merged weights $\bar w$ before it and ends at
    $\hat w$. The new merged weights are sought as

    $$\arg\min_w \sum_{s \in S} L_{\mathrm{past}}(\bar w + s (w - \bar w)) + L_k(\hat w + s (w -
    \hat w)),$$

    so that the loss stays low on the lines to both (eq. 6 of the paper), from
    $\bar w + a (\hat w - \bar w)$, by SGD with momentum 0.8 on the mean over $S$.
    $L_{\mathrm{past}}$ is the loss of memory examples of tasks before $k$, $L_k$ that of the stored
    examples of task $k$.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring; it is read when a task ends.
        line_points: Size of S, spread evenly over [0, 1]; one point is $s = 1$.
        line_start: $a$, in [0, 1].
        line_learning_rate: Step size of the descent.
        line_steps: Steps of the descent; None for one pass over the stored examples of past tasks,
            but 20 at least.
        line_gradient: "scaled", the derivative $s \nabla L$ by $w$, or "unscaled", $\nabla L$.
        rate_decay: As for `OptimizedModel`.
        **kwargs: As for `ReplayLearner`; `memory_batch_size` examples of past tasks are drawn for
            each step of the descent.

    Raises:
        UserError: A number is out of range.
    """

    memory_class = RingMemory
    fast_paths = ("deferred_logs",)
    refuses = get_method("mc_sgd").refuses

    def __init__(
        self,
        network: keras.Model,
        memory: RingMemory,
        *,
        line_points: int = 11,
        line_start: float = 0.25,
        line_learning_rate: float = 0.05,
        line_steps: int | None = None,
        line_gradient: str = "scaled",
        rate_decay: float | None = 0.8,
        **kwargs: Unpack[OwnRateDecayArguments],
    ):
        super().__init__(network, memory, rate_decay=rate_decay, **kwargs)
        self.line_points = int(LINE_POINTS.check(line_points))
        self.line_start = float(LINE_START.check(line_start))
        self.line_learning_rate = float(LINE_RATE.check(line_learning_rate))
        self.line_steps = LINE_STEPS.check(line_steps)
        self.line_gradient = LINE_GRADIENT.check(line_gradient)
        self.merged_weights = [
            self._state(f"merged{i}", tuple(v.shape), v.dtype, 0)
            for i, v in enumerate(network.trainable_variables)
        ]
        self._make_graphs()

    def grow_state(self, growth: Growth) -> None:
        super().grow_state(growth)
        growth.per_weight(self.merged_weights, fill=None)

    def forget_graphs(self) -> None:
        super().forget_graphs()
        self._make_graphs()

    def _make_graphs(self) -> None:
        self._descend = tf.function(self._take_descent, reduce_retracing=True, autograph=False)
        self._renew_statistics = tf.function(
            self._pass_for_statistics, reduce_retracing=True, autograph=False
        )

    def update(self, batch: Batch) -> Step:
        return self.learn_and_apply(batch)

    def on_task_begin(self, task_id: int) -> None:
        super().on_task_begin(task_id)
        _assign(self.merged_weights, current_weights(self))

    def on_task_end(self, task_id: int) -> None:
        stored = int(self.memory.readable_count())
        if stored:
            one_pass = max(-(-stored // self.memory_batch_size), LEAST_STEPS)
            self.merge(task_id, self.line_steps or one_pass)
        super().on_task_end(task_id)

    def merge(self, task_id: int, steps: int) -> None:
        """Put the merged weights into the network.

        Args:
            task_id: Task k, whose examples are stored but not closed.
            steps: Number of steps of the descent.
        """
        trained = current_weights(self)
        weights = lerp(self._merged(), trained, self.line_start)
        velocity = [tf.zeros_like(w) for w in weights]
        task = tf.constant(task_id)
        # The loss of the whole network: dropout would draw the same units at every point.
        with without_dropout(self.network):
            for _ in range(steps):
                weights, velocity = self._descend(weights, velocity, trained, task)
            _assign(self.network.trainable_variables, weights)
            # The moving averages of batch normalisation are those of w_hat still.
            for _ in range(steps):
                self._renew_statistics(task)

    def _take_descent(
        self, weights: Weights, velocity: Weights, trained: Weights, task: tf.Tensor
    ) -> tuple[Weights, Weights]:
        past = self.memory.read(self.memory_batch_size)
        present = self.memory.read_task(task)
        return self.under_xla(self._descent_step)(weights, velocity, trained, past, present)

    def _pass_for_statistics(self, task: tf.Tensor) -> None:
        past = self.memory.read(self.memory_batch_size)
        self.logits(concat_batches(past, self.memory.read_task(task)), training=True)

    def _merged(self) -> Weights:
        return [tf.convert_to_tensor(v.value) for v in self.merged_weights]

    def _descent_step(
        self, weights: Weights, velocity: Weights, trained: Weights, past: Batch, present: Batch
    ) -> tuple[Weights, Weights]:
        scaled = self.line_gradient == "scaled"
        sides = ((self._merged(), past), (trained, present))
        gradients = [
            line_gradient(
                lambda at, batch=batch: gradient_at(  # type: ignore[misc]
                    self, at, batch, training=True
                ).gradients,
                start,
                weights,
                self.line_points,
                scaled,
            )
            for start, batch in sides
        ]
        total = [f + g for f, g in zip(*gradients, strict=True)]
        rate = tf.constant(self.line_learning_rate, total[0].dtype)
        velocity = sgd_update([MOMENTUM * v for v in velocity], total, rate)
        return [w + v for w, v in zip(weights, velocity, strict=True)], velocity

    def get_config(self) -> dict[str, Any]:
        names = "line_points", "line_start", "line_learning_rate", "line_steps", "line_gradient"
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _assign(variables: list[keras.Variable], values: Weights) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def line_gradient(
    gradient: Callable[[Weights], Weights],
    start: Weights,
    end: Weights,
    points: int,
    scaled: bool,
) -> Weights:
    r"""Derivative by `end` of the mean loss over evenly spread points of the line from `start`.

    With $w_s = \text{start} + s (\text{end} - \text{start})$ it is the mean of $s \nabla L(w_s)$
    over $s$ in $S$.

    Args:
        gradient: $\nabla L$ at given weights.
        start: A tensor per weight.
        end: Tensors of the same shapes.
        points: Size of S on [0, 1]; one point is $s = 1$.
        scaled: Whether the factor s is taken; the code of CL-Gym leaves it out.
    """
    fractions = np.linspace(0, 1, points) if points > 1 else np.ones(1)
    if scaled:
        fractions = fractions[fractions > 0]  # The point s = 0 adds nothing.
    table = tf.constant(fractions, end[0].dtype)

    def add_point(i: tf.Tensor, total: Weights) -> tuple[tf.Tensor, Weights]:
        fraction = table[i]
        here = gradient(lerp(start, end, fraction))
        weight = fraction / points if scaled else tf.constant(1 / points, table.dtype)
        return i + 1, sgd_update(total, here, -weight)

    zeros = [tf.zeros_like(e) for e in end]
    return tf.while_loop(lambda i, _: i < len(fractions), add_point, (0, zeros))[1]
