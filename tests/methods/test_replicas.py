"""Learners on several replicas take the steps of one learner on the joint batch."""

import functools
import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from tests.methods.on_two_devices import METHODS, learn

pytestmark = pytest.mark.xdist_group("replicas")
CHEAP = ("nccl_ring", "er_reservoir")
SLOW = [name for name in METHODS if name not in CHEAP]


def run(*argv, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", *argv], env={**os.environ, **environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def printed(process) -> dict:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


@functools.cache
def on_two_devices(*methods) -> dict:
    return printed(run("tests.methods.on_two_devices", *methods))


def check(found):
    """28 steps in two tasks, the last batch of each half padding."""
    assert found["steps"] == 28
    assert found["copies"] == 0
    for what in ("state", "logs", "evaluation", "rows"):
        assert found[what] <= 1e-5, what


@pytest.mark.parametrize("name", CHEAP)
def test_two_devices_equal_one_on_the_joint_batch(name):
    found = on_two_devices(*CHEAP)
    assert found["replicas"] == 2
    check(found["methods"][name])


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_every_method_on_two_devices_equals_one(name):
    check(on_two_devices(*SLOW)["methods"][name])


def test_what_cannot_run_on_replicas_says_so():
    said = on_two_devices(*CHEAP)["refusals"]
    parts = (
        "EWC runs on one replica", "MIR runs on one replica", "equal slices for 2 replicas",
        "smoothness_mode='secant'", "union mask", "sum_of_means", "jit_compile=True",
        "mixed_float16",
    )  # fmt: skip
    assert len(said) == len(parts)
    for part, sentence in zip(parts, said, strict=True):
        assert part in sentence


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_two_workers_end_with_the_weights_of_one(tmp_path):
    workers = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    files = [tmp_path / f"{i}.npz" for i in range(2)]
    processes = []
    for i, file in enumerate(files):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}}
        config = json.dumps(task)
        processes.append(run("tests.methods.as_worker", str(file), TF_CONFIG=config))
    alone = learn("nccl_reservoir", evaluates=False)
    logs = [printed(process) for process in processes]
    assert logs[0]["replicas"] == 2
    with np.load(files[0]) as first, np.load(files[1]) as second:
        expected = alone.values()
        assert first.files == second.files
        for name in expected:
            np.testing.assert_array_equal(first[name], second[name])
            np.testing.assert_allclose(first[name], expected[name], atol=1e-5)
    for name, value in alone.logs.items():
        np.testing.assert_allclose(logs[1]["logs"][name], value, atol=1e-5)
