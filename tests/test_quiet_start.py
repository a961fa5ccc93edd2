"""TensorFlow starts without its messages, and what others say is passed on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_tf.quiet_start import print_at_once, quiet_start

ROOT = Path(__file__).parents[1]
NOISE = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n"
    "I0000 00:00:1795393782.905889   24669 port.cc:153] oneDNN custom operations are on.\n"
    "E0000 00:00:1795393786.338755   24669 cuda_platform.cc:52] failed call to cuInit\n"
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow\n"
)


def test_noise_is_held_back_and_the_rest_is_not(capfd):
    with quiet_start():
        os.write(2, f"{NOISE}a warning\nI am here, E0000 too\n".encode())
    assert capfd.readouterr().err == "a warning\nI am here, E0000 too\n"


def test_a_line_is_told_while_stderr_is_held_back(capfd):
    with quiet_start(), quiet_start():
        print_at_once("stopped")
        assert capfd.readouterr().err == "stopped\n"
    print_at_once("again")
    assert capfd.readouterr().err == "again\n"


def test_all_is_said_where_tensorflow_cannot_be_imported(capfd):
    with pytest.raises(ImportError), quiet_start():
        os.write(2, NOISE.encode())
        raise ImportError
    assert capfd.readouterr().err == NOISE


@pytest.mark.processes
@pytest.mark.parametrize(
    "argv",
    [
        ["train"],
        [f"--plugin={ROOT}/examples/own_method.py", "--method=my_derpp", "--logits_weight=0.25"],
    ],
)
def test_a_command_says_nothing_on_stderr(tmp_path, argv):
    argv = [sys.executable, ROOT / "run.py", *argv, "--max_tasks=1", f"--output_dir={tmp_path}"]
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "average accuracy" in done.stdout
