"""What is measured beside the steps: under mixed_float16 as in float32, whatever the loss scale."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import as_batch
from tests.learner.test_loss_scaling import network
from tests.tiny import IMAGE_SHAPE, tiny_batches

# Single examples overflow at it, the mean of a large batch does not.
SCALE = 2.0**18


def compiled(precision, cls, *arguments, **options):
    """A learner whose weights stay, in one of two precisions: both have equal weights."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(precision)
    try:
        model = cls(network(batch_norm=False), *arguments, **options)
        model.compile(keras.optimizers.SGD(0.0))
    finally:
        keras.config.set_dtype_policy(before)
    return model


def overflowing(model):
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        model.optimizer.dynamic_scale.assign(SCALE)


def test_importances_under_mixed_float16():
    def measured(precision):
        model = compiled(precision, nccl_tf.OnlineEWC)
        model.fit(tiny_batches(0, 15), verbose=0, end_task=False)
        overflowing(model)
        model.end_task()
        return np.concatenate([v.numpy().ravel() for v in model.importances])

    exact, low = measured("float32"), measured("mixed_float16")
    assert np.linalg.norm(low - exact) <= 2e-2 * np.linalg.norm(exact) > 0


@pytest.mark.nightly
def test_cosines_under_mixed_float16():
    def measured(precision):
        memory = nccl_tf.ScoredMemory(4, IMAGE_SHAPE)
        model = compiled(precision, nccl_tf.GSSGreedy, memory, memory_batch_size=2)
        ours, others = (as_batch(next(iter(tiny_batches(task, 4, 4))), task) for task in (0, 1))
        overflowing(model)
        cosines = tf.function(model.cosines, autograph=False)
        examples, batch = cosines(ours, others, tf.constant(True))
        return np.array([*examples, batch])

    np.testing.assert_allclose(measured("mixed_float16"), measured("float32"), atol=1e-2)


@pytest.mark.nightly
def test_a_step_whose_squares_overflow_is_skipped():
    model = compiled("mixed_float16", nccl_tf.EWC)
    overflowing(model)
    model.fit(tiny_batches(0, 600, 30), verbose=0)
    assert all(np.isfinite(v.numpy()).all() for v in (*model.running, *model.window_sums))
    assert 1 <= int(model.progress.skipped.numpy()) <= 4
    assert any(v.numpy().any() for v in model.running)


@pytest.mark.seconds(30)  # a merge that finds its scale
def test_a_merge_does_not_overflow():
    memory = nccl_tf.RingMemory(5, ((0, 1), (2, 3)), IMAGE_SHAPE)
    model = compiled("mixed_float16", nccl_tf.MCSGD, memory, line_steps=2)
    model.fit(tiny_batches(0, 15), verbose=0)
    model.fit(tiny_batches(1, 15), verbose=0, end_task=False)
    model.optimizer.dynamic_scale.assign(2.0**30)
    model.end_task()
    assert all(np.isfinite(w).all() for w in model.network.get_weights())
