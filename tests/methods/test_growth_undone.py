"""Growth that fails on the way leaves a learner as it was, wherever it fails."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.learner import growth
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.ring import RingMemory
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.methods.learners import assert_same_values, values
from tests.tiny import renewed

X = np.random.default_rng(0).normal(size=(12, 5)).astype("float32")
LABELS = np.arange(12) % 2


class Broken(Exception):
    pass


def breaks(*args, **kwargs):
    raise Broken


def after(function):
    def then_breaks(*args, **kwargs):
        function(*args, **kwargs)
        raise Broken

    return then_breaks


PLACES = {
    "head": (growth, "_infer_shapes", None),
    "growing": (growth.Growing, "grow", after),
    "memory": (RingMemory, "add_classes", after),
    "columns": (Memory, "add_classes", after),
    "optimizer": (growth, "_grow_optimizer", after),
}


def learner():
    network = keras.Sequential([
        keras.Input((5,)), keras.layers.Dense(4), keras.layers.Dense(2, name="head")
    ])  # fmt: skip
    made = nccl_tf.ExperienceReplay(
        network, nccl_tf.RingMemory(3, [[0, 1]]), dark=0.3, average_weights=0.9
    )
    optimizer = keras.optimizers.AdamW(0.01)
    optimizer.exclude_from_weight_decay(var_names=["head/bias"])
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    made.compile(scaled, metrics=["accuracy"])
    made.fit(X, LABELS, verbose=0)
    return made


def told(learner):
    """All that a file has of it but the values of variables."""
    return learner.get_config(), learner.get_compile_config(), learner.memory.get_config()


def step(learner):
    learner.fit(X, LABELS, shuffle=False, task_id=0, verbose=0)


@pytest.fixture(scope="module")
def grown_never():
    """A learner, its state, and its values after one step more, before it ever tries to grow."""
    made = learner()
    state = variables_to_arrays(made.state_variables)
    step(made)
    return made, state, values(made)


@pytest.mark.parametrize("place", PLACES)
def test_nothing_has_changed_and_the_next_step_is_the_same(place, grown_never, monkeypatch):
    one, state, expected = grown_never
    renewed(one, state)
    owner, name, make = PLACES[place]
    before, traces, configs = values(one), one.execution.traces, told(one)
    with monkeypatch.context() as patch:
        calls = []

        def first_breaks(*args, **kwargs):
            calls.append(1)
            return breaks() if len(calls) == 1 else original(*args, **kwargs)

        original = getattr(owner, name)
        patch.setattr(owner, name, make(original) if make else first_breaks)
        with pytest.raises(Broken):
            one.add_classes(2)
    for left, right in zip(before, values(one), strict=True):
        np.testing.assert_array_equal(left, right)
    assert one.num_classes == 2 and one.network.output_shape == (None, 2) and told(one) == configs
    step(one)
    assert one.execution.traces == traces
    assert_same_values(values(one), expected)


def test_it_grows_after_it_has_failed(grown_never, monkeypatch):
    """By fewer classes than it would have had."""
    one, *_ = grown_never
    with monkeypatch.context() as patch:
        patch.setattr(growth, "_grow_optimizer", after(growth._grow_optimizer))
        with pytest.raises(Broken):
            one.add_classes(2)
    one.add_classes(1)
    one.fit(X, np.full(12, 2), task_id=1, verbose=0)
    assert one.predict(X, verbose=0).shape == (12, 3) and not int(one.progress.skipped.numpy())
