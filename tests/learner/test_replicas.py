"""Learners on several replicas take the steps of one learner on the joint batch."""

import functools
import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.devices import overridden
from nccl_tf.methods.registry import METHODS as REGISTRY
from tests.learner.on_two_devices import METHODS, OWN
from tests.tiny import tiny_network

pytestmark = pytest.mark.xdist_group("replicas")
CHEAP = ("nccl_ring", "finetune:present")
CHEAP_OWN = ("OfStream", "OfMemory", "OfAll")
PLACES, CHEAP_PLACES = ("der", "nccl_reservoir", "agem"), ("er_reservoir",)
CLIPS, CHEAP_CLIPS = ("clipnorm", "clipvalue"), "global_clipnorm"
AT_PLACES = [f"places:{name}" for name in CHEAP_PLACES]
QUICK = (*CHEAP, *CHEAP_OWN, *AT_PLACES, f"whole:{CHEAP_CLIPS}", "statistics", "restarted")
GIVEN = {
    "dataset": "split_digits", "method": "nccl_reservoir", "max_tasks": 2, "examples_per_task": 100,
}  # fmt: skip
SLOW = [
    *(name for name in METHODS if name not in CHEAP),
    *("nccl_ring:4", "er_reservoir:weighed", "er_ace:present"),
]
SLOW_OWN = [name for name in OWN if name not in CHEAP_OWN]


def run(*argv, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", *argv], env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def printed(process) -> dict:
    with process:
        try:
            out, err = process.communicate(timeout=1200)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@functools.cache
def on_two_devices(*methods) -> dict:
    return printed(run("tests.learner.on_two_devices", *methods))


def check(found):
    """14 steps in each of two tasks, the last batch of each half padding."""
    assert found["steps"] == 28
    assert found["copies"] == 0
    for what in ("state", "logs", "evaluation", "rows", "verbs"):
        assert found[what] <= 1e-5, what


@pytest.mark.processes
@pytest.mark.parametrize("name", CHEAP)
def test_two_devices_equal_one_on_the_joint_batch(name):
    found = on_two_devices(*QUICK)
    assert found["replicas"] == 2
    check(found["methods"][name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SLOW)
def test_every_method_on_two_devices_equals_one(name):
    check(on_two_devices(*SLOW, *SLOW_OWN)["methods"][name])


def check_own(name, found):
    """Eight steps with unequal weights, in float64; logs are float32."""
    assert found["weights"] <= 1e-9
    assert found["logs"].keys() == set(OWN[name].log_names)
    assert max(found["logs"].values()) <= 1e-6


@pytest.mark.processes
@pytest.mark.parametrize("name", CHEAP_OWN)
def test_a_class_with_a_loss_of_its_own_takes_the_steps_of_one_device(name):
    check_own(name, on_two_devices(*QUICK)["own"][name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SLOW_OWN)
def test_every_class_of_ones_own_takes_the_steps_of_one_device(name):
    check_own(name, on_two_devices(*SLOW, *SLOW_OWN)["own"][name])


def check_at_places(found):
    """Sequences in float64; logs, and what the memory keeps beside tokens, are float32."""
    assert found.pop("weights") <= 1e-9
    assert {"memory place_weights", "log loss"} <= found.keys()
    assert max(found.values()) <= 1e-6


@pytest.mark.processes
@pytest.mark.parametrize("name", CHEAP_PLACES)
def test_sequences_with_weights_of_places_take_the_steps_of_one_device(name):
    check_at_places(on_two_devices(*QUICK)["places"][name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", PLACES)
def test_every_method_takes_the_steps_of_one_device_on_sequences(name):
    check_at_places(on_two_devices(*(f"places:{each}" for each in PLACES))["places"][name])


def check_whole(found):
    """The optimizer clips what it gets, before Keras sums over replicas; a generator has ten
    batches in two tasks."""
    assert found["state"] <= 1e-5
    assert found["counts"] == [[10, 80]] * 2


@pytest.mark.processes
def test_an_optimizer_on_replicas_gets_the_gradient_of_one_device():
    check_whole(on_two_devices(*QUICK)["whole"][CHEAP_CLIPS])


@pytest.mark.nightly
@pytest.mark.parametrize("name", CLIPS)
def test_every_way_to_clip_is_that_of_one_device(name):
    check_whole(on_two_devices(*(f"whole:{each}" for each in CLIPS))["whole"][name])


@pytest.mark.processes
def test_replicas_have_the_same_statistics_of_all_slices():
    found = on_two_devices(*QUICK)["statistics"]
    assert len(found) == 4
    assert max(found.values()) <= 1e-6


@pytest.mark.processes
def test_replicas_begin_a_training_anew_as_one_device():
    """Weights of the first training would be 0.1 away, and momentum of it too."""
    assert on_two_devices(*QUICK)["restarted"] <= 1e-6


@pytest.mark.nightly
def test_several_steps_in_a_call_end_with_the_averages_of_the_optimizer():
    assert on_two_devices("averaged_by_keras")["averaged_by_keras"] <= 1e-6


class Halved(nccl_tf.ExperienceReplay):
    def replay(self, batch, *replays):
        step = super().replay(batch, *replays)
        return step._replace(gradients=[0.5 * g for g in step.gradients])


class HalvedLater(Halved):
    """Inherits what it cannot say for its base."""


class HalvedOnReplicas(Halved):
    on_replicas = True


def test_a_class_with_gradients_of_its_own_says_itself_that_it_runs_on_replicas():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        for kind in (Halved, HalvedLater):
            with pytest.raises(UserError, match=r"overrides replay.*on_replicas = True"):
                kind(tiny_network(), nccl_tf.ReservoirMemory(12))
        HalvedOnReplicas(tiny_network(), nccl_tf.ReservoirMemory(12))


@pytest.mark.processes
def test_what_cannot_run_on_replicas_says_so():
    said = on_two_devices(*QUICK)["refusals"]
    parts = (
        "batch_size=len(x)", "EWC runs on one replica", "MIR runs on one replica",
        "equal slices for 2 replicas",
        "jit_compile=True",
        "mixed_float16", "gradient_accumulation_steps=2", "ema_overwrite_frequency=2",
        "metrics that do not fit", "text as inputs",
    )  # fmt: skip
    assert len(said) == len(parts)
    for part, sentence in zip(parts, said, strict=True):
        assert part in sentence


def test_the_registry_knows_what_runs_on_replicas():
    assert set(METHODS) <= {name for name, row in REGISTRY.items() if row.on_replicas}
    for name, row in REGISTRY.items():
        decays = any(number.name == "rate_decay" for number in row.hyperparameters)
        learner = row.learner_class()
        able = learner.on_replicas and not overridden(learner.__mro__) and not decays
        assert row.on_replicas is able, name
