"""Commands whose output nobody reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

WRITES = """
import os, sys
from nccl_tf.standard_streams import keep_standard_streams
keep_standard_streams()
with open({path!r}, "wb") as kept:
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        for _ in range(100):
            print("line", file=stream, flush=True)
        os.write(descriptor, b"of a library")
    kept.write(b"result")
"""


def shell(command, **arguments):
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, sys.executable], cwd=ROOT, capture_output=True,
        text=True, **arguments,
    )  # fmt: skip


@pytest.mark.parametrize("streams", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_what_is_printed_to_a_closed_stream_is_in_no_file(tmp_path, streams):
    path = tmp_path / "kept"
    (tmp_path / "code.py").write_text(WRITES.format(path=str(path)))
    done = shell(f"PYTHONPATH=. $0 {tmp_path / 'code.py'} {streams}")
    assert done.returncode == 0 and path.read_bytes() == b"result"


def without_reader(*command):
    """A command whose output goes to a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run([sys.executable, *command], cwd=ROOT, stdout=writer, stderr=writer)
    finally:
        os.close(writer)


def test_a_reader_that_leaves_ends_nothing(tmp_path):
    path = tmp_path / "kept"
    assert without_reader("-c", WRITES.format(path=str(path))).returncode == 0
    assert path.read_bytes() == b"result"


@pytest.mark.parametrize("flags", ["--helpfull", "--method=finetune --dry_run", "--method=none"])
def test_the_command_ends_as_if_it_were_read(flags):
    assert without_reader("run.py", *flags.split()).returncode == 2 * (flags == "--method=none")


FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")


@FULL
@pytest.mark.parametrize("streams", [">/dev/full", "2>/dev/full", ">/dev/full 2>&1"])
def test_a_full_disk_ends_nothing(tmp_path, streams):
    path = tmp_path / "kept"
    (tmp_path / "code.py").write_text(WRITES.format(path=str(path)).replace("os.write", "print"))
    done = shell(f"PYTHONPATH=. $0 {tmp_path / 'code.py'} {streams}")
    assert done.returncode == 0 and path.read_bytes() == b"result"


@FULL
@pytest.mark.parametrize("flags", ["--version", "--helpfull", "--method=finetune --dry_run"])
def test_a_command_whose_output_is_lost_says_so(flags):
    done = shell(f"$0 run.py {flags} >/dev/full")
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert said.startswith("error: cannot write standard output (No space left on device)")


@FULL
@pytest.mark.processes
def test_a_run_whose_output_is_lost_has_its_result(tmp_path):
    flags = "--method=finetune --dataset=split_digits --max_tasks=1 --hidden=16 --progress=plain"
    done = shell(f"$0 run.py {flags} --output_dir={tmp_path} >/dev/full")
    assert done.returncode == 0 and "are whole" in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_the_command_starts_without_streams(streams):
    assert shell(f"$0 run.py --version {streams}").returncode == 0
