"""A step without a finite loss and gradient changes nothing but its count."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import LearningFailedError
from nccl_tf.learner.checks import SKIPS_IN_A_ROW
from nccl_tf.records.checkpoints import assign_arrays, variables_to_arrays

SHAPE = (2, 2, 1)


@functools.cache
def built(jit_compile: bool):
    """A learner, and the values of its variables."""
    network = keras.Sequential(
        [
            keras.Input(SHAPE),
            keras.layers.Flatten(),
            keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(1)),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(2)),
        ]
    )
    memory = nccl_tf.ReservoirMemory(20, SHAPE, example_dtype="float32")
    model = nccl_tf.NCCL(network, memory, memory_batch_size=4)
    model.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile)
    return model, variables_to_arrays(model.state_variables)


def learner(jit_compile: bool = False) -> nccl_tf.NCCL:
    """A learner in its first state, whose graphs tests have in common."""
    model, first = built(jit_compile)
    assign_arrays(model.state_variables, first)
    return model


def batches(*bad: int, count: int = 6) -> tf.data.Dataset:
    random = np.random.default_rng(0)
    images = random.normal(size=(count, 4, *SHAPE)).astype(np.float32)
    images[list(bad), 0] = np.nan
    labels = random.integers(0, 2, (count, 4)).astype(np.int32)
    return tf.data.Dataset.from_tensor_slices((images, labels))


def frozen(model) -> dict[str, np.ndarray]:
    counters = ("skipped", "skipped_in_a_row", "draws")
    variables = [*model.variables, *model.optimizer.variables]
    values = {f"{i} {v.path}": v.numpy() for i, v in enumerate(variables) if v.name not in counters}
    # The row behind the last slot takes what is not kept; nothing reads it.
    rows = model.memory.capacity + 1
    return {k: v[:-1] if v.shape[:1] == (rows,) else v for k, v in values.items()}


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_bad_batch_changes_nothing(jit_compile):
    model = learner(jit_compile)
    model.fit(batches(count=3), verbose=0, end_task=False)
    before = frozen(model)
    model.fit(batches(0, count=1), verbose=0, end_task=False)
    for name, value in frozen(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    assert int(model.progress.skipped.numpy()) == 1


class Halved(keras.layers.Dense):
    """Halves its kernel in each training pass, before it uses it."""

    def call(self, inputs, training=False):
        if training:
            self.kernel.assign(self.kernel / 2)
        return super().call(inputs)


def gem(first: keras.layers.Layer, **arguments) -> nccl_tf.GEM:
    network = keras.Sequential([keras.Input((3,)), first, keras.layers.Dense(2)])
    memory = nccl_tf.RingMemory(4, [[0, 1]], (3,), example_dtype="float32")
    model = nccl_tf.GEM(network, memory)
    model.compile(keras.optimizers.SGD(0.1), **arguments)
    return model


@pytest.mark.parametrize("eagerly", [False, True])
def test_trainable_weights_that_a_layer_writes_are_put_back(eagerly):
    """GEM passes its memory through the network inside of a loop, and the stream outside of it."""
    x = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    y, model = np.arange(8) % 2, gem(Halved(2), run_eagerly=eagerly)
    model.train_on_batch(x, y)
    before = [v.numpy() for v in model.network.variables]
    x[0] = np.nan
    model.train_on_batch(x, y)
    assert int(model.progress.skipped.numpy()) == 1
    for variable, value in zip(model.network.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg=variable.path)


@pytest.mark.parametrize(("first", "held"), [(Halved, ["kernel"]), (keras.layers.Dense, [])])
def test_only_trainable_weights_that_are_written_are_held_through_a_step(first, held):
    model = gem(first(2))
    batch = model.as_batch((np.ones((1, 3), np.float32), np.zeros(1, np.int32)))
    assert [
        v.name for v in model.devices.written(model.outputs, batch, False) if v.trainable
    ] == held


def test_a_bad_batch_is_neither_stored_nor_measured():
    model = learner()
    model.fit(batches(count=4).take(3), verbose=0)
    without = [variable.numpy() for variable in model.memory.variables]
    model = learner()
    logs = model.fit(batches(3, count=4), verbose=0).history
    assert np.isfinite(logs["loss"][0]) and np.isfinite(logs["lambda"][0])
    assert int(model.memory.seen.numpy()) == 12
    for left, right in zip(without, model.memory.variables, strict=True):
        if right.name != "draws":
            np.testing.assert_array_equal(left.reshape(-1)[:20], right.numpy().reshape(-1)[:20])


def test_single_bad_batches_do_not_add_up_to_a_row():
    model = learner()
    model.fit(batches(0, 2, 4), verbose=0)
    assert int(model.progress.skipped.numpy()) == 3
    assert int(model.progress.skipped_in_a_row.numpy()) == 0


def test_after_ten_in_a_row_the_fit_fails_and_the_next_one_learns():
    model = learner()
    before = model.network.get_weights()
    with pytest.raises(LearningFailedError, match=r"10 steps in a row .* the next fit continues"):
        # What comes behind the ten is not learned either.
        model.fit(batches(*range(SKIPS_IN_A_ROW), count=SKIPS_IN_A_ROW + 2), verbose=0)
    for left, right in zip(before, model.network.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert int(model.progress.skipped.numpy()) == SKIPS_IN_A_ROW + 2
    assert np.isfinite(model.fit(batches(), verbose=0).history["loss"][0])
    assert any((a != b).any() for a, b in zip(before, model.network.get_weights(), strict=True))


def test_rows_of_bad_steps_in_two_fits_do_not_add_up():
    model, half = learner(), SKIPS_IN_A_ROW // 2
    model.fit(batches(count=1), verbose=0, end_task=False)
    for _ in range(2):
        history = model.fit(batches(*range(half), count=half), verbose=0, end_task=False).history
        assert np.isnan(history["loss"]).all()  # and not 0.0


def test_a_fit_that_learns_nothing_of_its_task_fails_and_leaves_it_open():
    model = linear(keras.optimizers.SGD(0.1))
    with pytest.raises(LearningFailedError):
        model.fit(batches(0, 1, count=2), verbose=0)
    assert bool(model.progress.task_is_open.numpy()) and not int(model.progress.tasks_ended.numpy())
    images = np.ones((20, *SHAPE), np.float32)
    labels = np.arange(20) % 2
    stream = nccl_tf.stream_from_arrays((images, labels), (images, labels), num_tasks=1)
    with pytest.raises(LearningFailedError):
        nccl_tf.learn(linear(keras.optimizers.SGD(1e30)), stream, verbose=0)


def linear(optimizer) -> nccl_tf.Finetune:
    network = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), keras.layers.Dense(2)])
    model = nccl_tf.Finetune(network)
    model.compile(optimizer)
    return model


@pytest.mark.parametrize("rate", [-np.inf, np.nan])
def test_a_rate_that_is_not_finite_is_refused(rate):
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([5], [rate, 0.1])
    for optimizer in (keras.optimizers.SGD(rate), keras.optimizers.Adam(schedule)):
        with pytest.raises(nccl_tf.UserError):
            linear(optimizer)
    model = linear(keras.optimizers.SGD(0.1))
    before = model.network.get_weights()
    of_epochs = keras.callbacks.LearningRateScheduler(lambda epoch: rate)
    with pytest.raises(nccl_tf.UserError):
        model.fit(batches(), verbose=0, callbacks=[of_epochs])
    of_batches = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(model.optimizer, "learning_rate", rate)
    )
    model.optimizer.learning_rate = 0.1
    with pytest.raises(nccl_tf.UserError):
        model.fit(batches(), verbose=0, callbacks=[of_batches])
    for left, right in zip(before, model.network.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_step_whose_update_would_not_be_finite_changes_nothing():
    model = linear(keras.optimizers.SGD(1e30))
    before = model.network.get_weights()
    with pytest.raises(LearningFailedError, match="the next fit continues"):
        model.fit(batches(count=SKIPS_IN_A_ROW), verbose=0)
    for left, right in zip(before, model.network.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    model.optimizer.learning_rate = 0.01
    assert np.isfinite(model.fit(batches(), verbose=0).history["loss"]).all()


def test_weights_that_an_optimizer_makes_infinite_are_a_failure():
    model = linear(keras.optimizers.SGD(0.1, weight_decay=np.inf))
    with pytest.raises(LearningFailedError, match="kernel"):
        model.fit(batches(count=1), verbose=0)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_nan_before_frozen_layers_skips_its_step(jit_compile, optimized_graphs):
    """A dense layer is joined with its relu, which makes 0 of NaN, and no gradient shows it."""
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(15, 6)).astype("float32"), np.arange(15) % 4
    x[7] = np.nan
    keras.utils.set_random_seed(0)
    frozen = keras.layers.Dense(8, "relu", trainable=False)
    network = keras.Sequential([keras.Input((6,)), frozen, keras.layers.Dense(4)])
    memory = nccl_tf.ReservoirMemory(20, (6,), example_dtype="float32")
    learner = nccl_tf.ExperienceReplay(network, memory)
    learner.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile)
    first, results = variables_to_arrays(learner.state_variables), []
    for rows in (np.arange(15), np.r_[0:5, 10:15]):
        assign_arrays(learner.state_variables, first)
        learner.fit(x[rows], y[rows], batch_size=5, shuffle=False, verbose=0)
        results.append((network.get_weights(), memory.read_all().labels.copy()))
        assert int(learner.progress.skipped.numpy()) == (len(rows) == 15)
    (weights, labels), (rest, kept) = results
    np.testing.assert_array_equal(labels, kept)
    for one, other in zip(weights, rest, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
