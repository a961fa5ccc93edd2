"""The moving average of the weights: its steps by hand, and evaluation that leaves no trace."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.options.option import config_of
from nccl_tf.methods.registry import METHODS
from tests.learner.test_skipped_steps import batches as flawed_batches
from tests.methods.hand import ALPHA, STREAM, WEIGHTS, gradient, network, stream
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

pytestmark = pytest.mark.eager

M = 0.75  # exact in float32


def averages(learner) -> list[np.ndarray]:
    return [variable.numpy() for variable in learner.option(AverageWeights).copy.variables]


def assert_equal(one, other):
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def test_steps_by_hand():
    """Two steps in the first task and one in the second; the average goes on between them."""
    learner = nccl_tf.Finetune(network(), average_weights=M)
    learner.compile(keras.optimizers.SGD(ALPHA))
    weights = average = WEIGHTS
    for steps in (2, 1):
        learner.fit(stream().repeat(steps), verbose=0)
        for _ in range(steps):
            weights = weights - ALPHA * gradient(*STREAM, weights)
            average = M * average + (1 - M) * weights
        np.testing.assert_allclose(averages(learner)[0], average, rtol=1e-12)
        np.testing.assert_allclose(learner.network.get_weights()[0], weights, rtol=1e-12)
    images, labels = STREAM
    inputs = tf.data.Dataset.from_tensors(images)
    logits = images.reshape(-1, 4) @ average
    seen = np.unique(labels)
    np.testing.assert_allclose(learner.predict(inputs, verbose=0)[:, seen], logits[:, seen])


def replaying(average_weights=M):
    memory = nccl_tf.RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, seed=1)
    learner = nccl_tf.NCCL(
        tiny_network(), memory, memory_batch_size=4, average_weights=average_weights
    )
    learner.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"], run_eagerly=True)
    return learner


@pytest.fixture(scope="module")
def trained():
    """A learner after two tasks."""
    learner = replaying()
    for task in (0, 1):
        learner.fit(tiny_batches(task, 20), task_id=task, verbose=0)
    return learner


def norm_network(dtype="float32"):
    return keras.Sequential([
        keras.Input((2, 2, 1)),
        keras.layers.Flatten(),
        keras.layers.BatchNormalization(dtype=dtype),
        keras.layers.Dropout(0.1, seed=1),
        keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(1), dtype=dtype),
    ])  # fmt: skip


def norm_learner(**compile_arguments):
    learner = nccl_tf.Finetune(norm_network(), average_weights=M)
    learner.compile(keras.optimizers.SGD(0.1), **compile_arguments)
    return learner


def test_batch_norm_statistics_are_averaged_and_generators_are_not():
    learner = norm_learner()
    names = [variable.name for variable in learner.option(AverageWeights).copy.originals]
    assert sorted(names) == sorted(
        ["gamma", "beta", "moving_mean", "moving_variance", "kernel", "bias"]
    )
    expected = [variable.numpy() for variable in learner.option(AverageWeights).copy.originals]
    for batch in flawed_batches(count=4):
        learner.fit(tf.data.Dataset.from_tensors(batch), verbose=0, end_task=False)
        now = [variable.numpy() for variable in learner.option(AverageWeights).copy.originals]
        expected = [M * a + (1 - M) * w for a, w in zip(expected, now, strict=True)]
    for left, right in zip(averages(learner), expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-7)
    assert any((a != w).any() for a, w in zip(averages(learner), now, strict=True))


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_skipped_step_leaves_the_average_as_it_is(jit_compile):
    learner = norm_learner(jit_compile=jit_compile)
    learner.fit(flawed_batches(count=3), verbose=0, end_task=False)
    before = averages(learner)
    learner.fit(flawed_batches(0, count=1), verbose=0, end_task=False)
    steps = learner.option(AverageWeights).steps
    assert int(learner.progress.skipped.numpy()) == 1 and int(steps.numpy()) == 3
    assert_equal(averages(learner), before)


ARRAYS = next(iter(tiny_batches(0, 40, 40).as_numpy_iterator()))
IMAGES, LABELS = ARRAYS[0]["inputs"], ARRAYS[1]
EVALUATIONS = {
    "evaluate": lambda learner: learner.evaluate(IMAGES, LABELS, verbose=0),
    "predict": lambda learner: learner.predict(IMAGES, verbose=0),
}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_evaluation_takes_the_average_and_puts_weights_back(name, trained):
    evaluate = EVALUATIONS[name]
    before, plain = trained.get_weights(), trained.network.get_weights()
    averaged = evaluate(trained)
    with trained.use_weights("plain"):
        of_weights = evaluate(trained)
    assert_equal(trained.get_weights(), before)
    # The same network by hand.
    trained.network.set_weights(averages(trained))
    try:
        with trained.use_weights("plain"):
            np.testing.assert_array_equal(evaluate(trained), averaged)
    finally:
        trained.network.set_weights(plain)
    if name.startswith("predict"):
        assert (averaged != of_weights).any()


def test_what_is_called_within_use_weights(trained):
    plain = trained.network(IMAGES).numpy()
    with trained.use_weights("averaged"):
        averaged = trained.network(IMAGES).numpy()
        assert_equal(trained.network.get_weights(), averages(trained))
        with trained.use_weights("plain"):
            np.testing.assert_array_equal(trained.network(IMAGES), plain)
        np.testing.assert_array_equal(trained.network(IMAGES), averaged)
    np.testing.assert_array_equal(trained.network(IMAGES), plain)
    assert (averaged != plain).any()


def test_an_evaluation_that_raises_puts_the_weights_back(trained):
    class Stop(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            assert_equal(trained.network.get_weights(), averages(trained))
            raise KeyboardInterrupt

    before = trained.get_weights()
    with pytest.raises(KeyboardInterrupt):
        trained.evaluate(IMAGES, LABELS, verbose=0, callbacks=[Stop()])
    assert_equal(trained.get_weights(), before)
    with pytest.raises(ZeroDivisionError), trained.use_weights("averaged"):
        raise ZeroDivisionError
    assert_equal(trained.get_weights(), before)
    with trained.use_weights("plain"):
        trained.evaluate(IMAGES, LABELS, verbose=0)
    assert_equal(trained.get_weights(), before)


@pytest.mark.nightly
def test_validation_during_training_is_of_the_average_and_leaves_no_trace(trained):
    learner, data = replaying(), tiny_batches(0, seed=9)
    for task in (0, 1):
        history = learner.fit(tiny_batches(task, 20), task_id=task, verbose=0, validation_data=data)
    assert_equal(learner.network.get_weights(), trained.network.get_weights())
    assert_equal(averages(learner), averages(trained))
    assert history.history["val_loss"][-1] == learner.evaluate(data, verbose=0)[0]


def test_the_average_begins_with_the_weights_that_the_first_task_begins_with():
    learner, loaded = replaying(), tiny_network(seed=5)
    before = learner.predict(IMAGES, verbose=0)
    learner.network.set_weights(loaded.get_weights())
    after = learner.predict(IMAGES, verbose=0)
    assert (before != after).any()
    # Products of 40 rows and of batches of 32 and 8 may be rounded otherwise.
    np.testing.assert_allclose(after, loaded(IMAGES).numpy(), rtol=1e-5, atol=1e-6)
    learner.begin_task(0)
    assert_equal(averages(learner), loaded.get_weights())


def test_what_is_no_evaluation_is_refused_on_the_average(trained, tmp_path):
    with trained.use_weights("averaged"):
        with pytest.raises(UserError, match="received a learner to be trained within"):
            trained.fit(tiny_batches(1), task_id=1, verbose=0, end_task=False)
        with pytest.raises(UserError, match="to be trained within"):
            trained.train_on_batch(IMAGES, LABELS)
        with pytest.raises(UserError, match="to be saved within"):
            trained.save(tmp_path / "learner.keras")
        with pytest.raises(UserError, match="to be grown within"):
            trained.add_classes(1)
        trained.network.save(tmp_path / "network.keras")
    assert not bool(trained.progress.task_is_open.numpy())
    network = keras.models.load_model(tmp_path / "network.keras")
    assert_equal(network.get_weights(), averages(trained))


def test_without_an_average_evaluation_is_plain():
    learner = replaying(None)
    names = [variable.name for variable in learner.variables]
    assert not any("average" in name for name in names)
    assert learner.get_config()["average_weights"] is None
    with learner.use_weights("plain"):
        learner.predict(IMAGES, verbose=0)
    with pytest.raises(UserError, match=r"keeps no average .* average_weights=0\.99"):
        learner.use_weights("averaged").__enter__()
    with pytest.raises(UserError, match="unknown"), replaying().use_weights("best"):
        pass


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_a_factor_out_of_range_is_refused(value):
    with pytest.raises(UserError, match="average_weights"):
        nccl_tf.Finetune(tiny_network(), average_weights=value)
    with pytest.raises(UserError, match="average_weights"):
        resolve({"average_weights": value})


def test_a_method_without_a_meaning_says_so_at_the_command():
    for name, row in METHODS.items():
        given = {"method": name, "dataset": "split_digits", "average_weights": 0.9}
        if row.unsupported_reason("split", "multi"):
            given["head"] = "single"
        reason = row.option_refusal("average_weights")
        if reason:
            with pytest.raises(UserError, match=reason):
                resolve(given)
        else:
            assert resolve(given).average_weights == 0.9


def test_saved_and_loaded_it_goes_on(tmp_path):
    learner = replaying()
    learner.fit(tiny_batches(0, 15), verbose=0)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert config_of(loaded.options) == {"average_weights": M}
    np.testing.assert_array_equal(
        loaded.predict(IMAGES, verbose=0), learner.predict(IMAGES, verbose=0)
    )
    for each in (learner, loaded):
        each.fit(tiny_batches(1, 15), task_id=1, verbose=0)
    assert_equal(averages(loaded), averages(learner))


def test_the_average_grows_with_the_head():
    learner = replaying()
    learner.fit(tiny_batches(0, 15), verbose=0)
    before, logits = averages(learner), learner.predict(IMAGES, verbose=0)
    learner.add_classes(2)
    for old, new, weight in zip(
        before, averages(learner), learner.network.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(new[..., : old.shape[-1]], old)
        np.testing.assert_array_equal(new[..., old.shape[-1] :], weight[..., old.shape[-1] :])
    np.testing.assert_array_equal(learner.predict(IMAGES, verbose=0)[:, :4], logits)
    weights = learner.network.get_weights()
    learner.fit(tiny_batches(1, 5), task_id=1, verbose=0)
    kernel = learner.option(AverageWeights).copy.variables[-2].numpy()
    expected = M * np.concatenate([before[-2], weights[-2][:, 4:]], 1)
    expected += (1 - M) * learner.network.get_weights()[-2]
    np.testing.assert_allclose(kernel, expected, rtol=1e-5, atol=1e-7)
