"""The steps of a stack whose memory examples are all drawn before the first one."""

from typing import Any

import tensorflow as tf

from nccl_tf.batch import BatchStack
from nccl_tf.learner.options.stream_mask import as_stream_batch
from nccl_tf.learner.step import LoggedSteps, Step, one_after_another


def take_prefetched_steps(learner: Any, stack: BatchStack, count: tf.Tensor) -> LoggedSteps:
    """`take_step` on each batch of a stack, with memory access for all steps at once.

    All reading comes before the first step and all writing after the last one: they are many small
    operations on a few integers, which cost hardly more for all steps than for one.

    Args:
        learner: A `ReplayLearner` that can prefetch its replay of this stack.
        stack: The batches.
        count: int32 scalar, their number.
    """
    learner.traces += 1
    slots, weights = learner.memory.sample_indices(learner.memory_batch_size, count)

    def take(replays: bool) -> LoggedSteps:
        def step(i: tf.Tensor) -> Step:
            batch = as_stream_batch(learner, stack.batch(i))
            learner.memory.check(batch)
            replay = learner.memory.rows(slots[i], weights[i])
            batches = (batch, replay) if replays else (batch,)
            with learner.decayed_rate():
                return learner.observed(batch, lambda: learner.learn_and_apply(*batches), replay)[0]

        return one_after_another(count, learner.logits_dtype, step)

    steps = tf.cond(tf.reduce_any(weights > 0), lambda: take(True), lambda: take(False))
    batch = learner.as_batch(stack.flat())
    finite = tf.math.is_finite(steps.values[:, :1])
    kept = tf.where(finite, tf.reshape(batch.weights, [count, -1]), 0.0)
    learner.memory.write(batch._replace(weights=tf.reshape(kept, [-1])))
    return steps
