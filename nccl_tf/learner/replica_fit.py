"""`fit` on replicas where Keras's own fails.

It raises under MultiWorkerMirroredStrategy, and with several steps in one call of the graph under
MirroredStrategy, whose replicas cannot meet inside the conditional that it puts around a step.
"""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.learner import replicas


def is_needed(learner: Any) -> bool:
    """Whether a learner cannot be fitted by Keras's own loop."""
    if learner.replicas is None:
        return False
    strategy, workers = learner.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy
    return isinstance(strategy, workers) or learner.steps_per_execution > 1


def fit(
    learner: Any,
    x: tf.data.Dataset,
    *,
    epochs: int = 1,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    verbose: Any = 0,
    shuffle: bool = False,
) -> keras.callbacks.History:
    """Learn from a dataset of whole batches, each replica from its own slice of every batch.

    Args:
        learner: A compiled learner; where there are several workers, in the same state on all.
        x: Batches of one size that the number of replicas divides, the same on every worker.
        epochs: Passes over it.
        callbacks: Called as Keras calls them, once in `steps_per_execution` steps.
        verbose: 0; there is no progress bar.
        shuffle: Whatever it is, a dataset comes in its own order, as in Keras.

    Raises:
        UserError: `x` is no dataset, or a batch cannot be cut into equal slices.
    """
    del shuffle
    if not isinstance(x, tf.data.Dataset) or x.cardinality() < 0:
        raise UserError(
            f"received {type(x).__name__} to learn on replicas: expected a tf.data.Dataset "
            "of known length, such as task.train_batches()"
        )
    size = tf.nest.flatten(x.element_spec)[0].shape[0]
    replicas.check_divides("batch size", size or 0, learner.replicas)
    called = keras.callbacks.CallbackList(
        list(callbacks or []), add_history=True, add_progbar=verbose not in (0, "auto"),
        verbose=verbose, epochs=epochs, steps=int(x.cardinality()), model=learner,
    )  # fmt: skip
    learner.stop_training = False
    run = _step_function(learner)
    called.on_train_begin()
    logs: dict[str, Any] = {}
    for epoch in range(epochs):
        learner.reset_metrics()
        called.on_epoch_begin(epoch)
        iterator = iter(x)
        for first in range(0, int(x.cardinality()), learner.steps_per_execution):
            count = min(learner.steps_per_execution, int(x.cardinality()) - first)
            called.on_train_batch_begin(first)
            run(iterator, tf.constant(count))
            called.on_train_batch_end(first + count - 1)
            if learner.stop_training:
                break
        logs = learner.get_metrics_result()
        called.on_epoch_end(epoch, logs)
        if learner.stop_training:
            break
    called.on_train_end(logs)
    return learner.history


def _step_function(learner: Any) -> Any:
    """(iterator, count) -> None: that many steps in one call; kept, so that it is traced once."""
    kept = getattr(learner, "_replica_steps", None)
    if kept is not None:
        return kept

    def step(data: Any) -> None:
        learner.train_step(replicas.own_slice(data))

    @tf.function(reduce_retracing=True)
    def steps(iterator: Any, count: tf.Tensor) -> None:
        for _ in tf.range(count):
            learner.distribute_strategy.run(step, args=(next(iterator),))

    learner._replica_steps = steps
    return steps
