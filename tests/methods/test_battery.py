"""What every registered method must do, on two tiny tasks."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.registry import METHODS
from tests.conftest import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

every_method = pytest.mark.parametrize("name", METHODS)


def make(name: str, heads=None, dtype="float32", **compile_arguments):
    row = METHODS[name]
    arguments = {"heads": heads, "seed": 3}
    if row.memory == "ring":
        arguments["memory"] = RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, seed=3)
    elif row.memory == "reservoir":
        arguments["memory"] = ReservoirMemory(12, IMAGE_SHAPE, seed=3)
    if row.memory:
        arguments["memory_batch_size"] = 4
    learner = row.learner_class()(tiny_network(dtype=dtype), **arguments)
    learner.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"], **compile_arguments)
    return learner


def fit(learner, *tasks, count=60, **kwargs):
    for task in tasks:
        history = learner.fit(tiny_batches(task, count), task_id=task, verbose=0, **kwargs)
    return history.history


def state(learner) -> dict[str, np.ndarray]:
    return {v.path: v.numpy() for v in learner.variables}


def assert_same_state(one, other):
    one, other = list(state(one).values()), list(state(other).values())
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@every_method
@pytest.mark.parametrize("heads", [None, TASK_CLASSES], ids=["single", "multi"])
def test_learns_two_tasks(name, heads):
    learner = make(name, heads)
    logs = fit(learner, 0, 1, count=200)
    assert np.isfinite(logs["loss"]).all()
    assert logs["accuracy"][-1] > 0.6
    loss, accuracy = learner.evaluate(tiny_batches(1, seed=9), verbose=0)
    assert np.isfinite(loss) and accuracy > 0.6


@every_method
def test_is_not_traced_again_for_later_tasks_or_partial_batches_padded(name):
    learner = make(name)
    fit(learner, 0)
    traces = learner.traces
    fit(learner, 1)
    assert learner.traces == traces == 1


@every_method
def test_same_seed_same_result(name):
    one, other = make(name), make(name)
    fit(one, 0, 1), fit(other, 0, 1)
    assert_same_state(one, other)


@every_method
def test_steps_per_execution_changes_no_bit(name):
    one, other = make(name), make(name, steps_per_execution=50)
    fit(one, 0, 1), fit(other, 0, 1)
    assert_same_state(one, other)


@every_method
def test_saved_in_mid_task_and_loaded_goes_on_as_if_not_stopped(name, tmp_path):
    learner = make(name, TASK_CLASSES)
    fit(learner, 0)
    fit(learner, 1, end_task=False)
    learner.save(tmp_path / "learner.keras")
    loaded = keras.models.load_model(tmp_path / "learner.keras")
    for each in (learner, loaded):
        each.fit(tiny_batches(1, seed=4), verbose=0)
        fit(each, 0)
    assert_same_state(learner, loaded)


def test_loaded_in_a_fresh_process_goes_on_as_if_not_stopped(tmp_path):
    learner = make("nccl_reservoir")
    fit(learner, 0)
    learner.save(tmp_path / "learner.keras")
    fit(learner, 1)
    code = f"""
import keras, numpy as np
import nccl_tf
from tests.conftest import tiny_batches
learner = keras.models.load_model({str(tmp_path / "learner.keras")!r})
learner.fit(tiny_batches(1), task_id=1, verbose=0)
np.savez({str(tmp_path / "weights.npz")!r}, *learner.get_weights())
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    with np.load(tmp_path / "weights.npz") as weights:
        for mine, name in zip(learner.get_weights(), weights.files, strict=True):
            np.testing.assert_array_equal(mine, weights[name])


@every_method
def test_xla_agrees(name):
    """To 1e-5 over 20 steps: weights and quantities, Lambda relative to the norms."""
    one, other = make(name), make(name, jit_compile=True)
    logs = [
        (fit(each, 0), each.fit(tiny_batches(1, count=40), task_id=1, verbose=0).history)[1]
        for each in (one, other)
    ]
    for left, right in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)
    for quantity in logs[0]:
        left, right = logs[0][quantity][0], logs[1][quantity][0]
        scale = 1.0
        if quantity == "lambda":
            scale = logs[0]["memory_gradient_norm"][0] * logs[0]["stream_gradient_norm"][0]
        assert abs(left - right) <= 1e-5 * max(scale, 1.0), quantity


@every_method
def test_trains_in_mixed_bfloat16(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        learner = make(name, dtype="mixed_bfloat16")
    finally:
        keras.config.set_dtype_policy("float32")
    logs = fit(learner, 0, 1, count=200)
    assert np.isfinite(logs["loss"]).all() and logs["accuracy"][-1] > 0.6
    assert all(v.dtype == "float32" for v in learner.trainable_variables)


@every_method
def test_masked_classes_receive_exactly_no_gradient(name):
    learner = make(name, TASK_CLASSES)
    before = learner.network.layers[-1].get_weights()
    fit(learner, 0)
    after = learner.network.layers[-1].get_weights()
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old[..., 2:], new[..., 2:])
        assert (old[..., :2] != new[..., :2]).any()


@every_method
def test_without_the_mask_the_other_classes_do_receive_gradient(name):
    learner = make(name, None)
    before = learner.network.layers[-1].get_weights()[0]
    fit(learner, 0)
    assert (before[:, 2:] != learner.network.layers[-1].get_weights()[0][:, 2:]).any()


@every_method
def test_the_registry_row_is_the_constructor(name):
    learner = make(name)
    for parameter in METHODS[name].hyperparameters:
        assert learner.get_config()[parameter.name] == parameter.default, parameter.name
