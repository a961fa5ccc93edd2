"""CutMix: a box of each image is replaced by that of another (Yun et al., ICCV 2019)."""

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.rng import uniform_below

_GRID = 2**24
"""Whole numbers that stand for [0, 1): exact in float32."""


def cutmix(batch: Batch, probability: float, seed: tf.Tensor) -> tuple[Batch, Batch, tf.Tensor]:
    """Mix a batch with a random permutation of itself, the same box for all of its images.

    The box covers 1 - lambda of the image before it is cut at the border, with lambda uniform in
    [0, 1) (Beta(1, 1)) and its centre uniform.

    Args:
        batch: Examples.
        probability: How often a batch is mixed at all.
        seed: int64 [2], never the same twice.

    Returns:
        The batch with mixed images; the same with the labels and tasks of the other images; and
        the share of the pixels that is the examples' own, float32 scalar.
    """
    count = tf.shape(batch.labels)[0]
    height, width = batch.inputs.shape[1:3]
    bounds = tf.concat([[_GRID, _GRID, height, width], tf.fill([count], 2**31 - 1)], axis=0)
    draws = uniform_below(seed, bounds)
    mixes = draws[0] < round(probability * _GRID)
    side = tf.sqrt(1 - tf.cast(draws[1], tf.float32) / _GRID)
    rows = _interval(draws[2], side, height) & mixes
    columns = _interval(draws[3], side, width)
    box = rows[:, None] & columns[None, :]
    other = tf.argsort(draws[4:], stable=True)
    images = tf.where(box[:, :, None], tf.gather(batch.inputs, other), batch.inputs)
    labels, tasks = tf.gather(batch.labels, other), tf.gather(batch.tasks, other)
    share = 1 - tf.reduce_mean(tf.cast(box, tf.float32))
    return (
        batch._replace(inputs=images),
        batch._replace(inputs=images, labels=labels, tasks=tasks),
        share,
    )


def _interval(centre: tf.Tensor, share: tf.Tensor, length: int) -> tf.Tensor:
    """bool [length]: an interval of `share` of the length around a centre, cut at the ends."""
    half = tf.cast(share * length, tf.int32) // 2
    index = tf.range(length)
    return (index >= centre - half) & (index < centre + half)
