"""Estimates of L on quadratics with a known one, and inside learners."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf import AGEM, NCCL, ReservoirMemory, RingMemory, UserError, load_model
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.learner.gradients.smoothness import (
    hessian_vector_product,
    power_iteration,
    secant,
)
from tests.methods.test_battery import assert_same_state
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


def quadratic(eigenvalues, seed):
    """The Hessian of a quadratic with these eigenvalues, and its gradient on a vector in parts."""
    rng = np.random.default_rng(seed)
    rotation, _ = np.linalg.qr(rng.normal(size=(len(eigenvalues),) * 2))
    hessian = rotation @ np.diag(eigenvalues) @ rotation.T

    def gradient(parts):
        sizes = [part.shape[0] for part in parts]
        # By blocks: XLA has no second derivative of a concatenation's slices.
        spans = [slice(a, b) for a, b in itertools.pairwise(np.cumsum([0, *sizes]))]
        with tf.GradientTape() as tape:
            tape.watch(parts)
            loss = 0.5 * tf.add_n(
                [
                    tf.reduce_sum(x * tf.linalg.matvec(tf.constant(hessian[mine, its]), y))
                    for mine, x in zip(spans, parts, strict=True)
                    for its, y in zip(spans, parts, strict=True)
                ]
            )
        return tape.gradient(loss, parts)

    return hessian, gradient


def parts_of(vector):
    return [tf.constant(vector[:2]), tf.constant(vector[2:])]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 100.0))
def test_the_secant_is_exact_where_all_curvatures_are_equal(seed, smoothness):
    _, gradient = quadratic([smoothness] * 5, seed)
    before, after = map(parts_of, np.random.default_rng(seed).normal(size=(2, 5)))
    found = secant(gradient(before), gradient(after), before, after)
    np.testing.assert_allclose(found, smoothness, rtol=1e-10)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_secant_never_exceeds_the_smoothness_and_reaches_it_along_its_direction(seed):
    hessian, gradient = quadratic([-4.0, 3.0, 1.0, 0.5, 0.0], seed)
    before, after = map(parts_of, np.random.default_rng(seed).normal(size=(2, 5)))
    assert secant(gradient(before), gradient(after), before, after) <= 4.0 * (1 + 1e-12)
    steepest = np.linalg.eigh(hessian)[1][:, 0]
    after = parts_of(tf.concat(before, 0).numpy() + 0.1 * steepest)
    found = secant(gradient(before), gradient(after), before, after)
    np.testing.assert_allclose(found, 4.0, rtol=1e-10)


def test_no_step_has_no_secant():
    _, gradient = quadratic([1.0, 2.0, 3.0], 0)
    x = parts_of(np.ones(3))
    assert np.isnan(secant(gradient(x), gradient(x), x, x))


def test_the_product_with_the_hessian():
    hessian, gradient = quadratic([-4.0, 3.0, 1.0, 0.5], 1)
    vector = np.arange(4.0)
    product = hessian_vector_product(gradient, parts_of(np.ones(4)), parts_of(vector))
    np.testing.assert_allclose(tf.concat(product, 0), hessian @ vector, rtol=1e-12)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("largest", [5.0, -5.0])
def test_power_iteration_finds_the_largest_magnitude(largest, jit):
    _, gradient = quadratic([largest, 1.0, 0.5, -0.2, 0.0], 2)
    start, x = parts_of(np.array([1.0, -1, 1, 1, -1])), parts_of(np.ones(5))
    function = tf.function(lambda: power_iteration(gradient, x, start), jit_compile=jit)
    np.testing.assert_allclose(function(), 5.0, rtol=1e-6)


def test_power_iteration_on_a_flat_loss():
    _, gradient = quadratic([0.0, 0.0, 0.0], 0)
    assert power_iteration(gradient, parts_of(np.ones(3)), parts_of(np.ones(3))) == 0.0


def normalised_network():
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE, dtype="uint8"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(3, 3, kernel_initializer=keras.initializers.GlorotUniform(1)),
            keras.layers.BatchNormalization(momentum=0.9),
            keras.layers.Flatten(),
            keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(2)),
        ]
    )


def trained(method=NCCL, network=None, rate=0.05, tasks=(0, 1), jit_compile=False, **arguments):
    memory = RingMemory(4, TASK_CLASSES, IMAGE_SHAPE, seed=3)
    if method is NCCL:
        memory = ReservoirMemory(12, IMAGE_SHAPE, seed=3)
    learner = method(network or tiny_network(), memory, memory_batch_size=4, seed=3, **arguments)
    learner.compile(keras.optimizers.SGD(rate), jit_compile=jit_compile)
    log = learner.record_steps(1)
    for task in tasks:
        learner.fit(tiny_batches(task), task_id=task, verbose=0)
    columns = log.columns()
    rows = np.array(log.take(0, whole=True)).reshape(-1, len(columns))
    return learner, {c.removesuffix("_mean"): rows[:, i] for i, c in enumerate(columns)}


@pytest.fixture(scope="module", params=["secant", "power"])
def mode(request):
    return request.param


@pytest.fixture(scope="module")
def online(mode):
    """A learner of NCCL that has measured L over two tasks, and its steps."""
    return trained(smoothness_mode=mode, smoothness=0.5)


def assert_measured_in_turn(steps, mode):
    every = {"secant": 10, "power": 50}[mode]
    replayed = ~np.isnan(steps["lambda"])
    measured = ~np.isnan(steps["smoothness_estimate"])
    assert measured[replayed][::every].all() and measured.sum() == -(-replayed.sum() // every)


def test_a_learner_measures_and_uses_it(mode, online):
    _, steps = online
    assert_measured_in_turn(steps, mode)
    replayed = ~np.isnan(steps["lambda"])
    used = steps["smoothness"][replayed]
    estimates = steps["smoothness_estimate"]
    first = estimates[~np.isnan(estimates)][0]
    assert used[0] == 0.5 and used[1] == np.float32(min(first, 0.9 / 0.05))
    gamma = (
        0.5 * steps["smoothness"] * (steps["beta_h"] * steps["stream_gradient_norm"]) ** 2
        - steps["beta_h"] * (1 - steps["alpha_h"] * steps["smoothness"]) * steps["lambda"]
    )
    np.testing.assert_allclose(steps["gamma_raw"][replayed], gamma[replayed], rtol=2e-4, atol=1e-6)


def test_an_estimate_is_kept_below_09_over_alpha():
    learner, steps = trained(smoothness_mode="secant", smoothness=100.0, rate=2.0)
    used = steps["smoothness"][~np.isnan(steps["smoothness"])]
    assert used[0] == used.max() == np.float32(0.45)
    assert np.nanmax(steps["smoothness_estimate"]) > 0.45 >= learner.estimate.value.numpy()


def test_a_regularizer_has_no_part_in_l(mode):
    """Its curvature is 10; a step has it in g_J alone."""
    network = tiny_network()
    network.layers[-1].kernel.regularizer = keras.regularizers.L2(5.0)
    assert network.losses
    _, steps = trained(AGEM, network, smoothness_mode=mode)
    assert 0 < np.nanmax(steps["smoothness_estimate"]) < 5


@pytest.fixture(scope="module")
def not_measured():
    return trained(AGEM, normalised_network())


def test_measuring_changes_nothing_else(mode, not_measured):
    """A-GEM's step does not depend on L: weights and batch-norm statistics stay as they were."""
    other, steps = trained(AGEM, normalised_network(), smoothness_mode=mode)
    assert_measured_in_turn(steps, mode)
    for left, right in zip(not_measured[0].network.weights, other.network.weights, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.slow  # the product and the power iteration under XLA: above, on quadratics
@pytest.mark.parametrize("mode", ["power", "secant"])
def test_xla_measures_the_same(mode):
    found = []
    for jit in (False, True):
        _, steps = trained(smoothness_mode=mode, tasks=(0,), jit_compile=jit)
        found.append(steps["smoothness_estimate"])
    assert np.isfinite(found[0]).any()
    np.testing.assert_allclose(*found, rtol=1e-3)


def test_saved_in_mid_task_and_loaded_goes_on_as_if_not_stopped(online, tmp_path):
    learner, _ = online
    learner.save(tmp_path / "learner.keras")
    loaded = load_model(tmp_path / "learner.keras")
    for each in (learner, loaded):
        each.fit(tiny_batches(1, seed=4), task_id=1, verbose=0)
    assert_same_state(learner, loaded)


def test_a_fixed_smoothness_adds_no_state_and_no_quantity():
    learner, steps = trained(tasks=())
    assert "lambda" in steps and "smoothness" not in steps
    assert not any("smoothness" in v.path for v in learner.variables)


def test_flags():
    online = resolve({"learning_rate": 2.0, "smoothness_mode": "secant"})
    assert online.hyperparameters["smoothness_mode"] == "secant"
    assert resolve({}).digest() == resolve({"smoothness_mode": "fixed"}).digest() != online.digest()
    with pytest.raises(UserError, match="alpha L below 1"):
        resolve({"learning_rate": 2.0})
    with pytest.raises(UserError, match="smoothness_mode"):
        resolve({"smoothness_mode": "secnt"})
