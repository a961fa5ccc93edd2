"""A fit ends where the learning rate leaves the range of its method."""

import keras
import pytest

import nccl_tf
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network


def nccl(**arguments) -> nccl_tf.NCCL:
    memory = nccl_tf.ReservoirMemory(10, IMAGE_SHAPE)
    learner = nccl_tf.NCCL(tiny_network(), memory, **arguments)
    learner.compile(keras.optimizers.SGD(0.1))
    return learner


@pytest.mark.eager
def test_a_scheduler_beyond_the_range_is_stopped():
    learner, schedule = nccl(), keras.callbacks.LearningRateScheduler(lambda e: 0.1 + e)
    with pytest.raises(nccl_tf.UserError, match=r"rate 1\.1 with smoothness L = 1: NCCL needs"):
        learner.fit(tiny_batches(0, 10), epochs=2, verbose=0, callbacks=[schedule])
    assert int(learner.optimizer.iterations.numpy()) == 2  # the steps of the first epoch


def test_an_assigned_rate_beyond_the_range_is_stopped():
    learner = nccl()
    learner.optimizer.learning_rate = 1.0
    with pytest.raises(nccl_tf.UserError, match="rate 1 with"):
        learner.fit(tiny_batches(0), verbose=0)
    assert int(learner.optimizer.iterations.numpy()) == 0


@pytest.mark.nightly
def test_a_rate_that_changes_within_an_epoch_is_seen():
    class Rise(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch >= 60:
                self.model.optimizer.learning_rate = 2.0

    learner = nccl()
    with pytest.raises(nccl_tf.UserError, match="rate 2 with"):
        learner.fit(tiny_batches(0, 2000), steps_per_epoch=300, verbose=0, callbacks=[Rise()])
