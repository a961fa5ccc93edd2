"""`fit` on replicas where Keras's own fails.

Keras's raises under MultiWorkerMirroredStrategy, and with several steps in one call of the graph
under MirroredStrategy, whose replicas cannot meet inside the conditional that it puts around a
step.
"""

import functools
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError


def fit(
    replicas: Any,
    learner: Any,
    x: Any,
    *,
    epochs: int = 1,
    callbacks: Any = None,
    verbose: Any = 0,
    **arguments: Any,
) -> keras.callbacks.History:
    """Learn from a dataset of whole batches, each replica from its slice of every batch.

    Args:
        replicas: The replicas of the learner.
        learner: A compiled learner; where there are several workers, in the same state on all.
        x: Batches of one size that the number of replicas divides, the same on every worker.
        epochs: Passes over it.
        callbacks: Called as Keras calls them, once in `steps_per_execution` steps.
        verbose: 0; there is no progress bar for "auto".
        **arguments: Other arguments of `fit`, which have to be at their defaults.

    Raises:
        UserError: `x` is no dataset, a batch cannot be cut into equal slices, or an argument has no
            effect here.
    """
    if not isinstance(x, tf.data.Dataset) or x.cardinality() < 0:
        raise UserError(
            f"received {type(x).__name__} to learn on replicas: expected a tf.data.Dataset "
            "of known length, such as task.train_batches()"
        )
    asked = [name for name, value in arguments.items() if value]
    if asked:
        raise UserError(
            f"received {', '.join(sorted(asked))} to learn on replicas with several steps in a "
            "call or several workers: leave it out, or take steps_per_execution=1 on one machine"
        )
    replicas.check_divides("batch size", tf.nest.flatten(x.element_spec)[0].shape[0] or 0)
    called = keras.callbacks.CallbackList(
        getattr(callbacks, "callbacks", callbacks), add_history=True, model=learner, epochs=epochs,
        add_progbar=verbose not in (0, "auto"), verbose=verbose, steps=int(x.cardinality()),
    )  # fmt: skip
    learner.stop_training = False
    if replicas.steps is None:
        steps = functools.partial(replicas.run_steps, learner)
        replicas.steps = tf.function(steps, reduce_retracing=True, autograph=False)
    called.on_train_begin()
    logs: dict[str, Any] = {}
    for epoch in range(epochs):
        learner.reset_metrics()
        called.on_epoch_begin(epoch)
        iterator = iter(x)
        for first in range(0, int(x.cardinality()), learner.steps_per_execution):
            count = min(learner.steps_per_execution, int(x.cardinality()) - first)
            called.on_train_batch_begin(first)
            replicas.steps(iterator, tf.constant(count))
            called.on_train_batch_end(first + count - 1)
            if learner.stop_training:
                break
        logs = learner.get_metrics_result()
        called.on_epoch_end(epoch, logs)
        if learner.stop_training:
            break
    called.on_train_end(logs)
    return learner.history
