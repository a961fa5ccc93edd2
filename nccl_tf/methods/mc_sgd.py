"""MC-SGD (Mirzadeh et al., ICLR 2021, "Linear mode connectivity in multitask and CL")."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import PLACE_WEIGHTS, Batch, concat_batches
from nccl_tf.gradients import lerp
from nccl_tf.keras_private import graph
from nccl_tf.learner import stateless
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.stateless import sgd_update
from nccl_tf.learner.step import Step
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.rows import mc_sgd as rows
from nccl_tf.networks.layers import without_dropout
from nccl_tf.rng import with_argument
from nccl_tf.variables import assign_all, values_of

Weights = list[tf.Tensor]

MOMENTUM = 0.8
"""Of the descent that merges two solutions."""

LEAST_STEPS = 50
"""Of that descent: it begins far from what the task has learned, and few examples may be stored."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class MCSGD(ReplayLearner):
    r"""Trains each task alone, then merges the new weights with the earlier ones.

    Task $k$ is learned by the stable regime from the weights $\hat w$ that the task before ended
    with, a chain beside the merged weights $\bar w$, and ends at the new $\hat w$. The new merged
    weights, with which the learner predicts once the task has ended, are sought as

    $$\arg\min_w \sum_{s \in S} L_{\mathrm{past}}(\bar w + s (w - \bar w)) + L_k(\hat w + s (w -
    \hat w)),$$

    so that the loss stays low on the lines to both (eq. 6 of the paper), from
    $\bar w + a (\hat w - \bar w)$, by SGD with momentum 0.8 on the mean over $S$.
    $L_{\mathrm{past}}$ is the loss of memory examples of tasks before $k$, $L_k$ that of a uniform
    sample of task $k$, in batches.

    The chain and the sample are those of the authors' code for their experiments
    (github.com/imirzadeh/CL-LinearModeConnectivity, `train_task_sequentially` and
    `train_task_LMC_offline` in core/train_methods.py, `get_all_loaders` in core/data_utils.py: 200
    examples of the current task). There the gradient lacks the factor s (`get_line_loss` in
    core/mode_connectivity.py), which the derivative of eq. 6 has, the memory's batches have
    examples of the current task too, and the first task's rate is not decayed; here it is, as in
    the code of stable SGD, whose recipe the method shares. Batch norm takes the batches' own
    statistics on the line as in core/models.py, but moving averages in evaluation, where that has
    none. The numbers of the descent were chosen on tuning tasks of permuted MNIST, in trials that
    were not kept.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring; it is read when a task ends.
        line_points: Size of S, spread evenly over [0, 1]; one point is $s = 1$.
        line_start: $a$, in [0, 1].
        line_learning_rate: Step size of the descent.
        line_steps: Steps of the descent; None for one pass over the stored examples of past tasks,
            but 50 at least.
        line_examples: Size of the sample of task k; 0 for all that the ring has of it.
        rate_decay: As for `Learner`.
        **kwargs: As for `ReplayLearner`; `memory_batch_size` examples of past tasks are drawn for
            each step of the descent.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.RingMemory(5, [[0, 1], [2, 3]], (28, 28, 1))
        >>> learner = nccl_tf.MCSGD(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    memory_class = RingMemory
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "walks from minimum to minimum in Python when a task ends",
        **rows.MC_SGD.refuses, "refreezing": "keeps state for each trainable weight",
    }  # fmt: skip

    def __init__(
        self,
        network: keras.Model,
        memory: RingMemory,
        *,
        line_points: int = 11,
        line_start: float = 0.5,
        line_learning_rate: float = 0.02,
        line_steps: int | None = None,
        line_examples: int = 200,
        rate_decay: float | None = 0.8,
        **kwargs: Any,
    ):
        super().__init__(network, memory, rate_decay=rate_decay, **kwargs)
        self.line_points = line_points
        self.line_start = line_start
        self.line_learning_rate = line_learning_rate
        self.line_steps = line_steps
        self.line_examples = line_examples
        self.merged = WeightCopy(self.network, self.state, "merged", network.trainable_variables)
        # Generators of dropout and counters go on over the ends of tasks.
        floats = [v for v in network.variables if keras.backend.is_float_dtype(v.dtype)]
        self.trained = WeightCopy(self.network, self.state, "trained", floats)
        self._begun: tuple[int, list[tf.Tensor]] | None = None
        self.sample: ReservoirMemory | None = None
        if self.line_examples:
            # The complement of a seed is no seed: the sample draws apart from everything else.
            self.sample = ReservoirMemory(self.line_examples, **_forms_of(memory))
            object.__setattr__(self.sample, "seed", with_argument(~self.seed))

    def memories(self) -> list[Memory]:
        return [*super().memories(), *([] if self.sample is None else [self.sample])]

    def after_step(self, batch: Batch, step: Step) -> None:
        super().after_step(batch, step)
        if self.sample is not None:
            self.sample.write(batch)

    def make_graphs(self) -> None:
        super().make_graphs()
        self._descend = graph(self._take_descent, reduce_retracing=True)
        self._renew_statistics = graph(self._pass_for_statistics, reduce_retracing=True)

    def update(self, batch: Batch) -> Step:
        return self.learn_and_apply(self.learn, batch)

    def on_task_begin(self, task_id: int) -> None:
        self.merged.take()
        found = [tf.identity(variable.value) for variable in self.trained.originals]
        self._begun = self._steps(), found
        # Until a task has ended, the weights that the learner was built or loaded with are both.
        if int(self.progress.tasks_ended.numpy()):
            self.trained.put()

    def close_task(self, task_id: int) -> None:
        """As of any learner, once the weights are merged: the memory reads earlier tasks then.

        A task without a step, such as `remember` closes, has nothing to merge.
        """
        self.trained.take()
        stored = int(self.memory.readable_count()) if self.memory.is_allocated else 0
        if self._begun is not None and self._begun[0] == self._steps():
            assign_all(self.trained.originals, self._begun[1])
        elif stored:
            one_pass = max(-(-stored // self.memory_batch_size), LEAST_STEPS)
            self.merge(task_id, self.line_steps or one_pass)
        super().close_task(task_id)
        if self.sample is not None and self.sample.is_allocated:
            self.sample.seen.assign(0)

    def _steps(self) -> int:
        return int(self.optimizer.iterations.numpy()) if self.compiled else 0

    def merge(self, task_id: int, steps: int) -> None:
        """Put the merged weights into the network.

        Args:
            task_id: Task k, whose examples are stored but not closed.
            steps: Number of steps of the descent.
        """
        trained = values_of(self.network.trainable_variables)
        weights = lerp(values_of(self.merged.variables), trained, self.line_start)
        velocity = [tf.zeros_like(w) for w in weights]
        task = tf.constant(task_id)
        # The loss of the whole network: dropout would draw the same units at every point.
        with without_dropout(self.network):
            for _ in range(steps):
                weights, velocity = self._descend(weights, velocity, trained, task)
            assign_all(self.network.trainable_variables, weights)
            # The moving averages of batch normalisation are those of w_hat still.
            for _ in range(steps):
                self._renew_statistics(task)

    def _take_descent(
        self, weights: Weights, velocity: Weights, trained: Weights, task: tf.Tensor
    ) -> tuple[Weights, Weights]:
        past, present = self._batches(task)
        return self._descent_step(weights, velocity, trained, past, present)

    def _pass_for_statistics(self, task: tf.Tensor) -> None:
        self.forward(concat_batches(*self._batches(task)), training=True)

    def _batches(self, task: tf.Tensor) -> tuple[Batch, Batch]:
        """Examples of the tasks before, and of the task that ends."""
        past = self.memory.read(self.memory_batch_size)
        if self.sample is None:
            return past, self.memory.read_task(task)
        return past, self.sample.read(self.memory_batch_size)

    def _descent_step(
        self, weights: Weights, velocity: Weights, trained: Weights, past: Batch, present: Batch
    ) -> tuple[Weights, Weights]:
        sides = ((values_of(self.merged.variables), past), (trained, present))
        gradients = [
            line_gradient(
                # A descent has no next step that a halved scale would help.
                lambda at, batch=batch: stateless.finite_gradient(  # type: ignore[misc]
                    self, at, batch, training=True
                ),
                start,
                weights,
                self.line_points,
            )
            for start, batch in sides
        ]
        total = [f + g for f, g in zip(*gradients, strict=True)]
        rate = tf.constant(self.line_learning_rate, total[0].dtype)
        velocity = sgd_update([MOMENTUM * v for v in velocity], total, rate)
        return [w + v for w, v in zip(weights, velocity, strict=True)], velocity


def line_gradient(
    gradient: Callable[[Weights], Weights],
    start: Weights,
    end: Weights,
    points: int,
) -> Weights:
    r"""Derivative by `end` of the mean loss over evenly spread points of the line from `start`.

    With $w_s = \text{start} + s (\text{end} - \text{start})$ it is the mean of $s \nabla L(w_s)$
    over $s$ in $S$.

    Args:
        gradient: $\nabla L$ at given weights.
        start: A tensor per weight.
        end: Tensors of the same shapes.
        points: Size of S on [0, 1]; one point is $s = 1$.
    """
    fractions = np.linspace(0, 1, points) if points > 1 else np.ones(1)
    fractions = fractions[fractions > 0]  # The point s = 0 adds nothing.
    table = tf.constant(fractions, end[0].dtype)

    def add_point(i: tf.Tensor, total: Weights) -> tuple[tf.Tensor, Weights]:
        fraction = table[i]
        here = gradient(lerp(start, end, fraction))
        return i + 1, sgd_update(total, here, -fraction / points)

    zeros = [tf.zeros_like(e) for e in end]
    return tf.while_loop(lambda i, _: i < len(fractions), add_point, (0, zeros))[1]


def _forms_of(memory: Memory) -> dict[str, Any]:
    """Arguments of a memory of the same examples; none where the first `fit` will tell."""
    if not memory.is_allocated:
        return {}
    return {
        "example_shape": memory.example_shape,
        "example_dtype": memory.example_dtype,
        "label_shape": memory.labels.shape[1:],
        "label_dtype": memory.labels.dtype,
        "extras": {n: form for n, form in memory.extras.items() if n == PLACE_WEIGHTS},
    }
