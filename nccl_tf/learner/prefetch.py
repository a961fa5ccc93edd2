"""The steps of a stack whose memory examples are all drawn before the first one."""

from typing import Any, cast

import tensorflow as tf

from nccl_tf.batch import Batch, BatchStack, cut
from nccl_tf.learner.options.stream_mask import with_stream_classes
from nccl_tf.learner.step import LoggedSteps, RecordedSteps


def take_prefetched_steps(learner: Any, stack: BatchStack, count: tf.Tensor) -> LoggedSteps:
    """`take_step` on each batch of a stack, with memory access for all steps at once.

    All reading comes before the first step and all writing after the last one: they are many small
    operations on a few integers, which cost hardly more for all steps than for one. What is read
    ahead holds until a step is skipped, which writes nothing, and is then read again; so too where
    an empty memory gets its first examples.

    Args:
        learner: A `ReplayLearner` that can prefetch its replay of this stack.
        stack: The batches.
        count: int32 scalar, their number.
    """
    learner.traces += 1
    batches = batches_of(learner, stack)

    def run(start: tf.Tensor, recorded: RecordedSteps) -> tuple[tf.Tensor, RecordedSteps]:
        return steps_until_stop(learner, batches, start, recorded)

    start = tf.constant(0), RecordedSteps.none_of(count, learner.logits_dtype)
    return tf.while_loop(lambda start, _: start < count, run, start)[1].all()


def batches_of(learner: Any, stack: BatchStack) -> Batch:
    """The batches of a stack as its learner takes them, [steps, n, ...].

    Raises:
        UserError: They do not fit into the memory.
    """
    whole = learner.as_batch(stack.flat())
    learner.memory.check(whole)
    return cut(whole, cast(int, stack.size))


def steps_until_stop(
    learner: Any, batches: Batch, start: tf.Tensor, recorded: RecordedSteps
) -> tuple[tf.Tensor, RecordedSteps]:
    """Steps from one on, as far as what is read ahead holds, and then their writing.

    Args:
        learner: As for `take_prefetched_steps`.
        batches: [steps, n, ...].
        start: int32 scalar, the first step.
        recorded: What the steps before it left.

    Returns:
        int32 scalar, the step after the last one that was taken, and what all have left.
    """
    ahead = learner.memory.ahead(batches, start, learner.memory_batch_size)
    steps = tf.range(tf.shape(batches.weights)[0])
    reads = ahead.replays.weights[:, 0] > 0
    others = (steps > start) & tf.not_equal(reads, reads[start])
    until = tf.reduce_min(tf.where(others, steps, tf.size(steps)))

    def take(replays: bool) -> Any:
        def step(i: tf.Tensor, _: tf.Tensor, recorded: RecordedSteps) -> Any:
            batch = with_stream_classes(learner, batches.map(lambda part: tf.gather(part, i)))
            replay = ahead.replays.map(lambda part: tf.gather(part, i))
            learned = (batch, replay) if replays else (batch,)
            with learner.decayed_rate():
                taken, _ = learner.observed(
                    batch, lambda: learner.learn_and_apply(*learned), replay
                )
            return i + 1, taken.is_skipped, recorded.write(i, taken)

        return tf.while_loop(
            lambda i, skipped, _: (i < until) & tf.logical_not(skipped),
            step,
            (start, tf.constant(False), recorded),
        )

    end, skipped, recorded = tf.cond(reads[start], lambda: take(True), lambda: take(False))
    ahead.keep(end, end - tf.cast(skipped, tf.int32))
    return end, recorded
