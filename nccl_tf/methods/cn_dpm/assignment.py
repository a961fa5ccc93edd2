"""Assignment of examples to experts (CN-DPM, Lee et al., 2020), as pure functions."""

from typing import NamedTuple

import tensorflow as tf


class Assignment(NamedTuple):
    """Experts that the examples of a batch belong to.

    Attributes:
        responsibilities: [1 + experts, n], which sum to 1 over the experts; row 0 is "new".
        is_new: bool [n], whether "new" is the likeliest.
        shares: [1 + experts, n], the responsibilities without "new", which sum to 1, or to 0 for a
            new example.
    """

    responsibilities: tf.Tensor
    is_new: tf.Tensor
    shares: tf.Tensor


def assign(log_joint: tf.Tensor) -> Assignment:
    """Assign examples to experts.

    Args:
        log_joint: [1 + experts, n], from `log_joint`.
    """
    responsibilities = tf.nn.softmax(log_joint, axis=0)
    is_new = tf.equal(tf.argmax(log_joint, axis=0), 0)
    kept = tf.concat([tf.zeros_like(log_joint[:1]), responsibilities[1:]], axis=0)
    shares = tf.math.divide_no_nan(kept, tf.reduce_sum(kept, axis=0))
    return Assignment(responsibilities, is_new, tf.where(is_new, tf.zeros_like(kept), shares))


def log_joint(
    log_weights: tf.Tensor,
    takes_part: tf.Tensor,
    log_densities: tf.Tensor,
    log_predictions: tf.Tensor,
    labels: tf.Tensor,
    chill: float,
) -> tf.Tensor:
    """log N_k p_k(x) p_k(y | x) with sharpened p(y | x), [1 + experts, n]; -inf for experts apart.

    Args:
        log_weights: [1 + experts], log N_k, and log alpha in row 0.
        takes_part: bool [1 + experts].
        log_densities: [1 + experts, n].
        log_predictions: [1 + experts, n, classes].
        labels: int64 [n].
        chill: Temperature: p(y | x) is replaced by softmax(log p(y | x) / chill).
    """
    sharp = tf.nn.log_softmax(log_predictions / chill)
    is_label = tf.one_hot(labels, sharp.shape[-1], on_value=True, off_value=False)
    of_label = tf.reduce_sum(tf.where(is_label, sharp, tf.zeros_like(sharp)), axis=2)
    joint = log_weights[:, None] + log_densities + of_label
    return tf.where(takes_part[:, None], joint, tf.constant(-float("inf"), joint.dtype))
