"""Learners on several replicas take the steps of one learner on the joint batch."""

import functools
import json
import os
import subprocess
import sys

import pytest

from nccl_tf.methods.registry import METHODS as REGISTRY
from tests.learner.on_two_devices import METHODS

pytestmark = pytest.mark.xdist_group("replicas")
CHEAP = ("nccl_ring", "finetune:present")
GIVEN = {
    "dataset": "split_digits", "method": "nccl_reservoir", "max_tasks": 2, "examples_per_task": 100,
}  # fmt: skip
SLOW = [*(name for name in METHODS if name not in CHEAP), "nccl_ring:4", "er_reservoir:weighed"]


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
    """28 steps in two tasks, the last batch of each half padding."""
    assert found["steps"] == 28
    assert found["copies"] == 0
    for what in ("state", "logs", "evaluation", "rows", "verbs"):
        assert found[what] <= 1e-5, what


@pytest.mark.processes
@pytest.mark.parametrize("name", CHEAP)
def test_two_devices_equal_one_on_the_joint_batch(name):
    found = on_two_devices(*CHEAP)
    assert found["replicas"] == 2
    check(found["methods"][name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SLOW)
def test_every_method_on_two_devices_equals_one(name):
    check(on_two_devices(*SLOW)["methods"][name])


@pytest.mark.processes
def test_what_cannot_run_on_replicas_says_so():
    said = on_two_devices(*CHEAP)["refusals"]
    parts = (
        "batch_size=len(x)", "EWC runs on one replica", "MIR runs on one replica",
        "equal slices for 2 replicas",
        "union mask", "sum_of_means", "dark=1", "jit_compile=True",
        "mixed_float16",
    )  # fmt: skip
    assert len(said) == len(parts)
    for part, sentence in zip(parts, said, strict=True):
        assert part in sentence


def test_the_registry_knows_what_runs_on_replicas():
    assert set(METHODS) <= {name for name, row in REGISTRY.items() if row.on_replicas}
    for name, row in REGISTRY.items():
        decays = any(number.name == "rate_decay" for number in row.hyperparameters)
        assert row.on_replicas is (row.learner_class().on_replicas and not decays), name
