"""What the device of a learner does in a step, where there is one; `Replicas` are several."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch, stack_batches
from nccl_tf.learner.fitting.disk_loop import DiskTrainFunction
from nccl_tf.learner.fitting.train_loop import TrainFunction
from nccl_tf.learner.step import Step

Pair = tuple[list[tf.Tensor], list[tf.Tensor]]
"""f_I and g_J, a tensor per trainable variable each."""


class OneDevice:
    """A learner outside of tf.distribute."""

    count = 1

    def check_learner(self, learner: Any) -> None:
        """Refuse a learner that cannot run here: every one can."""

    def check_grows(self) -> None:
        """Refuse a learner whose head cannot grow here: every one's can."""

    def check_learns_a_batch(self) -> None:
        """Refuse `train_on_batch` where it has no meaning: it has one here."""

    def predict_batch(
        self, learner: Any, x: Any, task_id: int | None, by_keras: Callable[[], Any]
    ) -> Any:
        """Logits of one batch, as `by_keras` gives them."""
        return by_keras()

    def check_divides(self, what: str, size: int) -> None:
        """Check that a batch can be cut into a slice for each replica: it is not cut."""

    def prepare(self, learner: Any, jit_compile: bool) -> None:
        """Make a learner that has been compiled ready to be traced."""

    def train_function(self, learner: Any) -> Any:
        """What `fit` calls with Keras's iterator; None for Keras's own."""
        return DiskTrainFunction(learner) if learner.reads_from_disk else TrainFunction(learner)

    def forget_graphs(self, learner: Any) -> None:
        """Let the train function trace again what it needs."""
        if learner.train_function is not None:
            learner.train_function.forget_graphs()

    def most_steps(self, asked: int | None, fast: int) -> int:
        """The most steps in one call of the graph.

        Args:
            asked: What the user asked for.
            fast: A number that is fast.
        """
        return asked or fast

    def stack(self, dataset: tf.data.Dataset, steps: int) -> tf.data.Dataset | None:
        """A dataset of `BatchStack`, or None where batches stay single."""
        return stack_batches(dataset, steps) if steps > 1 else None

    def fit(self, learner: Any, x: Any, **arguments: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`."""
        return keras.Model.fit(learner, x, **arguments)

    def evaluate(self, learner: Any, evaluate: Callable[..., Any], return_dict: bool) -> Any:
        """Evaluate; `evaluate(return_dict=...)` is Keras's own."""
        return evaluate(return_dict=return_dict)

    def slice(self, batch: Batch) -> Batch:
        """This replica's rows."""
        return batch

    def gather(self, batch: Batch) -> Batch:
        """The slices of all replicas as one batch."""
        return batch

    def any(self, flags: tf.Tensor) -> tf.Tensor:
        """Where flags (bool [...]) hold on any replica."""
        return flags

    def mean_step(self, step: Step, batches: Sequence[Batch]) -> Step:
        """The step of all replicas, whose gradient is the mean over the examples of all batches."""
        return step

    def mean_pair(
        self, gradients: Pair, losses: dict[str, tf.Tensor], batches: tuple[Batch, Batch]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor], dict[str, tf.Tensor], tf.Tensor]:
        """The gradients on the whole memory and stream batches, and whether the former has any."""
        return *gradients, losses, tf.reduce_any(batches[1].weights > 0)

    def learn(self, learner: Any, *batches: Batch) -> Step:
        """The gradients of one step on batches."""
        return learner.learn(*batches)

    def learn_replays(self, learner: Any, batch: Batch, replays: Sequence[Batch]) -> Step:
        """Learn and apply a step on the stream, and on the memory where it has examples."""
        # Outside of XLA, whose convolutions inside of a conditional take sixteen times as long
        # on a CPU (benchmarks/xla.py).
        return tf.cond(
            tf.reduce_any(replays[0].weights > 0),
            lambda: learner.learn_and_apply(batch, *replays),
            lambda: learner.learn_and_apply(batch),
        )

    def apply(
        self, learner: Any, step: Step, accepted: tf.Tensor, statistics: list[tf.Tensor]
    ) -> None:
        """Apply a step, or leave everything as it was where it is not accepted."""
        tf.cond(
            accepted,
            lambda: learner.apply_step(step),
            lambda: learner.skip_step(step, statistics),
        )
