"""What every registered method must do, on two tiny tasks."""

import functools
import subprocess
import sys
from typing import NamedTuple

import keras
import numpy as np
import pytest

from nccl_tf.memories.balanced import BalancedMemory
from nccl_tf.memories.edited_reservoir import EditedReservoirMemory
from nccl_tf.memories.exemplars import ExemplarMemory
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.memories.ring import RingMemory
from nccl_tf.memories.scored import ScoredMemory
from nccl_tf.memories.short_term import ShortTermMemory
from nccl_tf.methods.registry import METHODS
from tests.conftest import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_experts, tiny_network

# A method's tests run in one process, where they share the run that they compare with.
NAMES = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in METHODS]
every_method = pytest.mark.parametrize("name", NAMES)
MEMORIES = {
    "reservoir": lambda: ReservoirMemory(12, IMAGE_SHAPE, seed=3),
    "past_reservoir": lambda: ReservoirMemory(12, IMAGE_SHAPE, exclude_current_task=True, seed=3),
    "edited_reservoir": lambda: EditedReservoirMemory(12, IMAGE_SHAPE, seed=3),
    "past_edited_reservoir": lambda: EditedReservoirMemory(
        12, IMAGE_SHAPE, exclude_current_task=True, seed=3
    ),
    "scored": lambda: ScoredMemory(12, IMAGE_SHAPE, seed=3),
    "balanced": lambda: BalancedMemory(12, TASK_CLASSES, IMAGE_SHAPE, seed=3),
    "exemplars": lambda: ExemplarMemory(12, IMAGE_SHAPE, seed=3),
}
FEWER_STEPS = {"cn_dpm": {"vae_steps": 60, "classifier_steps": 60, "vae_learning_rate": 0.01}}
HIDDEN = {"supsup": 64}  # units, in place of 8, which two superposed masks would share
RATES = {"bgd": 10.0, "cn_dpm": 0.02, "ewc": 0.05, "supsup": 1.0}
PREDICTS_FROM_THE_END = ("gdumb", "icarl")  # of a task, and not with what its steps put out
UNMASKED_IN_TRAINING = ("cn_dpm", "multi_task")


def make(name: str, heads=None, dtype="float32", **compile_arguments):
    row = METHODS[name]
    arguments = {"heads": heads, "seed": 3}
    if row.memory == "ring":
        arguments["memory"] = RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, seed=3)
    elif row.memory in MEMORIES:
        arguments["memory"] = MEMORIES[row.memory]()
    if row.memory and row.memory_batch:
        arguments["memory_batch_size"] = 4
    if row.takes_num_tasks:
        arguments["num_tasks"] = len(TASK_CLASSES)
    if row.memory == "short_term":
        arguments["memory"] = ShortTermMemory(12, IMAGE_SHAPE, seed=3)
    arguments |= FEWER_STEPS.get(name, {})
    if "mlp_experts" in row.networks:
        network = tiny_experts(dtype=dtype)
    else:
        edited = "edited" in (row.memory or "")
        input_dtype = "float32" if edited else "uint8"
        network = tiny_network(dtype=dtype, input_dtype=input_dtype, hidden=HIDDEN.get(name, 8))
    learner = row.learner_class()(network, **arguments)
    rate = RATES.get(name, 0.25)
    learner.compile(keras.optimizers.SGD(rate), metrics=["accuracy"], **compile_arguments)
    return learner


def fit(learner, *tasks, count=60, **kwargs):
    for task in tasks:
        history = learner.fit(tiny_batches(task, count), task_id=task, verbose=0, **kwargs)
    return history.history


def head(learner) -> list[np.ndarray]:
    """What is trained of the last layer: its weights, or the scores of supsup's masks on them."""
    if hasattr(learner, "scores"):
        return [learner.scores[-1].numpy()]
    return learner.network.layers[-1].get_weights()


def state(learner) -> dict[str, np.ndarray]:
    return {v.path: v.numpy() for v in learner.variables}


class Reference(NamedTuple):
    """A single-head run over both tasks."""

    state: list[np.ndarray]
    weights: list[np.ndarray]
    logs: dict[str, list[float]]  # of the second task
    traces: tuple[int, int]  # after each task
    heads: tuple[list[np.ndarray], list[np.ndarray]]  # before the first task and after it


@functools.cache
def reference(name: str) -> Reference:
    learner = make(name)
    before = head(learner)
    fit(learner, 0)
    after, traces = head(learner), learner.traces
    logs = fit(learner, 1)
    return Reference(
        values(learner),
        learner.get_weights(),
        logs,
        (traces, learner.traces),
        (before, after),
    )


def values(learner) -> list[np.ndarray]:
    return list(state(learner).values())


def assert_same_values(one: list[np.ndarray], other: list[np.ndarray]):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def assert_same_state(one, other):
    assert_same_values(values(one), values(other))


@every_method
@pytest.mark.parametrize("heads", [None, TASK_CLASSES], ids=["single", "multi"])
def test_learns_two_tasks(name, heads):
    learner = make(name, heads)
    logs = fit(learner, 0, 1, count=200)
    assert np.isfinite(logs["loss"]).all()
    assert logs["accuracy"][-1] > 0.6 or name in PREDICTS_FROM_THE_END
    loss, accuracy = learner.evaluate(tiny_batches(1, seed=9), verbose=0)
    assert np.isfinite(loss) and accuracy > 0.6


@every_method
def test_is_not_traced_again_for_later_tasks(name):
    assert reference(name).traces == (1, 1)


@every_method
def test_same_seed_same_result(name):
    learner = make(name)
    fit(learner, 0, 1)
    assert_same_values(values(learner), reference(name).state)


@every_method
def test_steps_per_execution_changes_no_bit(name):
    learner = make(name, steps_per_execution=50)
    fit(learner, 0, 1)
    assert_same_values(values(learner), reference(name).state)


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
    """To 1e-5 over 24 steps: weights and quantities, Lambda relative to the norms."""
    learner, plain = make(name, jit_compile=True), reference(name)
    logs = fit(learner, 0, 1)
    for left, right in zip(plain.weights, learner.get_weights(), strict=True):
        # The relative part is for pixels that were edited.
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-5)
    for quantity in logs:
        left, right = plain.logs[quantity][0], logs[quantity][0]
        scale = 1.0
        if quantity == "lambda":
            scale = logs["memory_gradient_norm"][0] * logs["stream_gradient_norm"][0]
        assert abs(left - right) <= 1e-5 * max(scale, 1.0), quantity


@every_method
def test_trains_in_mixed_bfloat16(name):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        learner = make(name, dtype="mixed_bfloat16")
    finally:
        keras.config.set_dtype_policy("float32")
    logs = fit(learner, 0, 1, count=200)
    assert np.isfinite(logs["loss"]).all()
    assert logs["accuracy"][-1] > 0.6 or name in PREDICTS_FROM_THE_END
    assert learner.evaluate(tiny_batches(1, seed=9), verbose=0)[1] > 0.6
    assert all(v.dtype == "float32" for v in learner.trainable_variables)


@pytest.mark.parametrize("name", [p for p in NAMES if p.values[0] not in UNMASKED_IN_TRAINING])
def test_masked_classes_receive_exactly_no_gradient(name):
    learner = make(name, TASK_CLASSES)
    before = head(learner)
    fit(learner, 0)
    after = head(learner)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old[..., 2:], new[..., 2:])
        assert (old[..., :2] != new[..., :2]).any()


@pytest.mark.parametrize("name", [p for p in NAMES if p.values[0] != "cn_dpm"])
def test_without_the_mask_the_other_classes_do_receive_gradient(name):
    (before, *_), (after, *_) = reference(name).heads
    assert (before[:, 2:] != after[:, 2:]).any()


@every_method
def test_the_registry_row_is_the_constructor(name):
    learner = make(name)
    for parameter in METHODS[name].hyperparameters:
        if parameter.part != "learner":
            continue
        expected = FEWER_STEPS.get(name, {}).get(parameter.name, parameter.default)
        assert learner.get_config()[parameter.name] == expected, parameter.name
