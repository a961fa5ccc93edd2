"""One device by itself: what a step may write, and an update that is accepted or undone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.devices import OneDevice, kind_in_scope

pytestmark = pytest.mark.eager


def normalised():
    return keras.Sequential(
        [keras.Input((3,)), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    )


def test_a_step_may_write_statistics_and_no_weight_that_no_layer_assigns():
    network = normalised()
    device = OneDevice(network)
    ones = tf.ones([4])
    batch = Batch(tf.zeros([4, 3]), tf.zeros([4], tf.int64), tf.zeros([4], tf.int64), ones)

    def outputs(inputs, tasks, training):
        return network(inputs, training=training)

    assert device.written(outputs, batch, eagerly=False) == network.non_trainable_variables
    assert device.written(outputs, batch, eagerly=True) == network.variables
    assert device.losses() == network.losses


@pytest.mark.parametrize("accepted", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_an_update_is_applied_or_leaves_everything_as_it_was(accepted, scaled):
    weight, moved = (keras.Variable(np.ones(2, "float32")) for _ in range(2))
    optimizer = keras.optimizers.SGD(0.5)
    optimizer.build([weight])
    before, told = [(moved, tf.identity(moved.value))], []
    moved.assign([5.0, 5.0])  # by a pass
    device = OneDevice(normalised())
    device.accept(
        tf.constant(accepted), before, [weight, moved], optimizer,
        apply=lambda: optimizer.apply([tf.ones(2)], [weight]),
        skip=(lambda: told.append("skipped")) if scaled else None,
    )  # fmt: skip
    assert weight.numpy().tolist() == ([0.5, 0.5] if accepted else [1.0, 1.0])
    assert moved.numpy().tolist() == ([5.0, 5.0] if accepted else [1.0, 1.0])
    assert told == (["skipped"] if scaled and not accepted else [])


@pytest.mark.parametrize("filled", [True, False])
def test_a_step_replays_where_the_memory_has_examples(filled):
    device = OneDevice(normalised())
    made = device.either(tf.constant(filled), lambda: tf.constant(2.0), lambda: tf.constant(3.0))
    assert float(made) == (2 if filled else 3)


def test_a_learner_is_of_the_scope_that_it_was_built_in():
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        assert kind_in_scope() is not OneDevice
        with pytest.raises(UserError, match="a Mine that was built outside of the scope"):
            OneDevice(normalised()).check_scope("Mine")
    assert kind_in_scope() is OneDevice
