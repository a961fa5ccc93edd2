"""Many steps in one call of the graph."""

import keras
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf import Finetune
from nccl_tf.methods.step_loop import DEFAULT_STEPS, StepLoop, steps_in_a_call
from tests.conftest import tiny_batches, tiny_network


@given(st.integers(1, 10**4))
def test_without_a_number_from_the_user_whole_calls_make_an_epoch(steps_per_epoch):
    steps = steps_in_a_call(None, steps_per_epoch)
    assert 1 <= steps <= DEFAULT_STEPS and steps_per_epoch % steps == 0
    assert steps_in_a_call(7, steps_per_epoch) == 7
    assert steps_in_a_call(None, None) == DEFAULT_STEPS


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


def test_what_a_call_does_not_take_stays_in_the_iterator():
    total = tf.Variable(0)
    run = StepLoop(total.assign_add, lambda: {"total": total.value()}, 3)
    iterator = iter(tf.data.Dataset.from_tensor_slices([1, 2, 3, 4]))
    assert int(run(iterator)["total"]) == 6
    assert int(run(iterator)["total"]) == 10
    with pytest.raises(StopIteration):
        run(iterator)
