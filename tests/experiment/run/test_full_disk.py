"""A disk that fills up stops a run with one sentence, and its last checkpoint stays good."""

import subprocess

import pytest
import tensorflow as tf
from tensorflow.python.framework.config import disable_op_determinism

from nccl_tf.errors import UserError
from nccl_tf.experiment.run.train import translate_oom_error
from tests.experiment.run.test_resume import result

ARGV = (
    "--method=er_ring", "--dataset=split_digits", "--hidden=64", "--deterministic",
    "--max_tasks=2", "--checkpoint_every=0.01", "--steps_per_execution=5",
)  # fmt: skip


@pytest.fixture
def small_disk(tmp_path):
    """A folder that holds 500 kB: the picture of a checkpoint being written beside two others."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=500k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("this user cannot mount a tmpfs")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.nightly
def test_a_full_disk_is_told_and_a_run_goes_on(tmp_path, small_disk, command):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(380_000))
    code, _, errors = command(*ARGV, f"--output_dir={small_disk}")
    assert code == 2
    last = errors.strip().splitlines()[-1]
    assert last.startswith("error: ") and "No space left on device" in last
    assert not list(small_disk.rglob("result.json"))
    filler.unlink()
    assert command(*ARGV, f"--output_dir={small_disk}")[0] == 0
    assert command(*ARGV, f"--output_dir={tmp_path / 'whole'}")[0] == 0
    disable_op_determinism()
    assert result(small_disk) == result(tmp_path / "whole")


def test_a_disk_that_is_full_for_tensorflow_is_told():
    """Its event files end in the error of a machine without memory."""
    with (
        pytest.raises(UserError, match="the disk of the output folder is full"),
        translate_oom_error(),
    ):
        raise tf.errors.ResourceExhaustedError(None, None, "events; No space left on device")
    with pytest.raises(UserError, match="ran out of memory"), translate_oom_error():
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")
