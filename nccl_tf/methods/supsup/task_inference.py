"""Infers the task of an example by the entropy of a superposition (Wortsman et al., 2020)."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def surest_task(
    logits: Callable[[list[tf.Tensor]], tf.Tensor],
    stacks: Sequence[tf.Tensor],
    known: tf.Tensor,
    count: tf.Tensor,
) -> tf.Tensor:
    """The task for which the entropy H of each example's output falls fastest with its share.

    The output is that of the tasks' values superposed, sum_i alpha_i V_i, with equal alpha for the
    tasks that are known; chosen is the one with the greatest -dH/dalpha_i (one step of the paper's
    equation 4).

    Args:
        logits: Of the examples, [count, classes], with superposed values.
        stacks: The values of all tasks, floating-point [tasks, ...] each.
        known: bool [tasks]: which to choose from. At least one.
        count: Number of examples.

    Returns:
        int64 [count].
    """
    tasks = known.shape[0]
    alphas = tf.cast(known, stacks[0].dtype)
    alphas /= tf.reduce_sum(alphas)

    def fall(task: tf.Tensor) -> tf.Tensor:
        """-dH/dalpha_task of each example."""
        direction = tf.one_hot(task, tasks, dtype=alphas.dtype)
        with tf.autodiff.ForwardAccumulator(alphas, direction) as forward:
            log_p = tf.nn.log_softmax(logits([tf.tensordot(alphas, s, 1) for s in stacks]))
            entropy = -tf.reduce_sum(tf.exp(log_p) * log_p, axis=1)
        return -forward.jvp(entropy)

    def step(task: tf.Tensor, best: tf.Tensor, falls: tf.Tensor) -> Any:
        here = tf.cond(known[task], lambda: fall(task), lambda: nothing)
        return task + 1, tf.where(here > falls, task, best), tf.maximum(here, falls)

    nothing = tf.fill([count], tf.constant(-float("inf"), alphas.dtype))
    start = [tf.constant(0, tf.int64), tf.fill([count], tf.constant(tasks - 1, tf.int64)), nothing]
    return tf.while_loop(lambda task, *_: task < tasks, step, start, parallel_iterations=1)[1]
