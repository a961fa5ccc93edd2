"""Many steps in one call of the graph."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf import Finetune, Task, networks
from nccl_tf.chunks import chunks_of
from nccl_tf.learner.train_loop import (
    DENSE_STEPS,
    StepLoop,
    fast_steps,
    whole_calls,
)
from nccl_tf.streams.arrays import Examples
from tests.conftest import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


@given(st.integers(1, DENSE_STEPS), st.integers(1, 10**4))
def test_whole_calls_make_an_epoch(most, steps_per_epoch):
    steps = whole_calls(most, steps_per_epoch)
    assert 1 <= steps <= most and steps_per_epoch % steps == 0
    assert whole_calls(most, None) == most


def test_a_call_takes_fewer_steps_where_they_are_long():
    assert fast_steps(tiny_network()) == DENSE_STEPS
    assert fast_steps(networks.resnet18_reduced((8, 8, 3), 4)) < DENSE_STEPS


@pytest.mark.parametrize("steps_per_epoch", [7, 51, 60])
def test_fit_takes_no_step_more_than_it_was_told(steps_per_epoch):
    learner = Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(tiny_batches(0).repeat(), steps_per_epoch=steps_per_epoch, verbose=0)
    assert int(learner.optimizer.iterations) == steps_per_epoch


class Calls(keras.callbacks.Callback):
    """The numbers that batch callbacks see."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        self.seen.append((batch,))

    def on_train_batch_end(self, batch, logs=None):
        self.seen[-1] += (batch, logs["loss"])


def test_a_batch_callback_is_called_once_in_a_call_with_the_means_so_far():
    losses = {}
    for steps in (1, 5):
        learner, calls = Finetune(tiny_network()), Calls()
        learner.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps)
        learner.fit(tiny_batches(0, count=50), callbacks=[calls], verbose=0)
        assert [call[:2] for call in calls.seen] == [
            (first, first + steps - 1) for first in range(0, 10, steps)
        ]
        losses[steps] = [float(call[2]) for call in calls.seen]
    assert losses[5] == losses[1][4::5]


class Adding:
    """Stands for a learner, with a sum that shows what it has learned."""

    def __init__(self):
        self.total = tf.Variable(0)

    def train_step(self, data):
        self.total.assign_add(data)

    def get_metrics_result(self):
        return {"total": self.total.value()}


def test_what_a_call_does_not_take_stays_in_the_iterator():
    run = StepLoop(Adding(), 3)
    iterator = iter(tf.data.Dataset.from_tensor_slices([1, 2, 3, 4]))
    assert int(run(iterator)["total"]) == 6
    assert int(run(iterator)["total"]) == 10
    with pytest.raises(StopIteration):
        run(iterator)


def a_task() -> Task:
    """27 examples."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (27, *IMAGE_SHAPE), dtype=np.uint8)
    examples = Examples(images, random.choice(TASK_CLASSES[0], 27).astype(np.int32))
    return Task(0, TASK_CLASSES[0], 27, lambda: examples, lambda: examples)


def learned(data, epochs=1, **arguments):
    learner = Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], **arguments)
    history = learner.fit(data, epochs=epochs, verbose=0, shuffle=False)
    return learner, history.history


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_chunks_are_the_same_batches(steps):
    """Also where a chunk is not full, where a batch is padded, and in a second epoch."""
    task = a_task()
    chunked = task.train_batches(4, seed=1)
    assert chunks_of(chunked) is not None
    one_by_one = chunked.take(-1)
    assert chunks_of(one_by_one) is None
    both = [learned(data, 2, steps_per_execution=steps) for data in (chunked, one_by_one)]
    for left, right in zip(*(learner.get_weights() for learner, _ in both), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-6)
    for name, values in both[0][1].items():
        np.testing.assert_allclose(values, both[1][1][name], rtol=0, atol=1e-6)
    assert both[0][0].traces == 1


class OwnStep(Finetune):
    """With a `train_step` that counts."""

    def __init__(self, network):
        super().__init__(network)
        self.own_steps = tf.Variable(0, trainable=False)

    def train_step(self, data):
        self.own_steps.assign_add(1)
        return super().train_step(data)


def test_a_train_step_of_ones_own_is_called_for_every_batch():
    learner = OwnStep(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(a_task().train_batches(4), verbose=0)
    assert int(learner.own_steps) == int(learner.optimizer.iterations) == 7


def test_chunks_can_begin_later():
    task = a_task()
    whole = [x["inputs"].numpy() for x, _, _ in task.train_batches(4)]
    rest = chunks_of(task.train_batches(4, skip=3))(2)
    found = np.concatenate([x["inputs"].numpy() for x, _, _ in rest])
    np.testing.assert_array_equal(found, np.stack(whole[3:]))
