"""The steps of a stack whose memory examples are all drawn before the first one."""

from typing import Any, cast

import tensorflow as tf

from nccl_tf.batch import BatchStack, cut
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
    whole = learner.as_batch(stack.flat())
    learner.memory.check(whole)
    batches = cut(whole, cast(int, stack.size))

    def run(start: tf.Tensor, recorded: RecordedSteps) -> tuple[tf.Tensor, RecordedSteps]:
        ahead = learner.memory.ahead(batches, start, learner.memory_batch_size)
        reads = ahead.replays.weights[:, 0] > 0
        steps = tf.range(count)
        others = (steps > start) & tf.not_equal(reads, reads[start])
        until = tf.reduce_min(tf.where(others, steps, count))

        def take(replays: bool) -> Any:
            def step(i: tf.Tensor, _: tf.Tensor, recorded: RecordedSteps) -> Any:
                batch = with_stream_classes(learner, batches.map(lambda part: part[i]))
                replay = ahead.replays.map(lambda part: part[i])
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

    start = tf.constant(0), RecordedSteps.none_of(count, learner.logits_dtype)
    return tf.while_loop(lambda start, _: start < count, run, start)[1].all()
