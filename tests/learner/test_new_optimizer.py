"""An optimizer that begins a task anew: its moments and steps, but neither rate nor loss scale."""

import keras
import numpy as np
import pytest

from nccl_tf.learner.options.new_optimizer import NewOptimizer


@pytest.mark.parametrize("scaled", [False, True])
def test_moments_and_steps_begin_anew_and_what_was_set_stays(scaled):
    weight = keras.Variable(np.ones(3, np.float32))
    optimizer = inner = keras.optimizers.Adam(0.5)
    if scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0)
    optimizer.build([weight])
    gradient = keras.ops.convert_to_tensor(np.full(3, 8.0, np.float32))
    optimizer.apply([gradient], [weight])
    inner.learning_rate = 0.25
    assert all(np.any(variable.numpy()) for variable in inner.variables)
    option = NewOptimizer()
    option.on_task_begin(0)  # of a learner that is not compiled
    option.on_compile(optimizer, None)
    option.on_task_begin(1)
    kept = {variable.name for variable in inner.variables if np.any(variable.numpy())}
    assert kept == {"learning_rate"} and float(inner.learning_rate) == 0.25
    if scaled:
        assert float(optimizer.dynamic_scale.numpy()) == 8.0


@pytest.mark.parametrize("kind", ["Adagrad", "Ftrl", "Nadam"])
def test_what_does_not_begin_at_0_begins_as_in_a_new_one(kind):
    weight = keras.Variable(np.ones(3, np.float32))
    optimizer, new = (getattr(keras.optimizers, kind)(0.5) for _ in range(2))
    optimizer.build([weight])
    new.build([weight])
    option = NewOptimizer()
    option.on_compile(optimizer, None)
    optimizer.apply([keras.ops.convert_to_tensor(np.full(3, 8.0, np.float32))], [weight])
    option.on_task_begin(1)
    assert any(np.any(each.numpy()) for each in new.variables if each.name != "learning_rate")
    for one, other in zip(optimizer.variables, new.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
