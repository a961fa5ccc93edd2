"""What a flag passes on its way to training."""

import subprocess
import sys

import pytest

from benchmarks.trace_flag import ROOT


@pytest.fixture(scope="module")
def passed(tmp_path_factory):
    """The lines of the benchmark, which has to be the first thing in a process."""
    words = ["--learning_rate=0.1", f"--output_dir={tmp_path_factory.mktemp('runs')}"]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.trace_flag", *words],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.splitlines()  # fmt: skip


def test_a_flag_passes_few_files(passed):
    *files, total = passed
    assert len(files) <= 15 and total.endswith(f"in {len(files)} files")


@pytest.mark.parametrize("function", ["parse", "all_flags", "resolve"])
def test_the_line_is_parsed_and_resolved_once(passed, function):
    calls = [name for line in passed[:-1] for name in line.partition(": ")[2].split(", ")]
    assert f"{function} 1" in calls
