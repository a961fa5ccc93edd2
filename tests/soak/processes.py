"""Runs of the command in processes: forked from this one, which has imported TensorFlow, or whole.

Nothing in this process may run an operation of TensorFlow, whose threads a fork would lose.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ENVIRONMENT = {
    "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONFAULTHANDLER": "0",
}  # fmt: skip
ROOT = Path(__file__).parents[2]
MOST_SECONDS = 300


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
        code: Its exit code; minus the number of the signal that killed it.
        out: What it printed to stdout.
        err: And to stderr.
        seconds: How long it took, by the clock.
    """

    code: int
    out: str
    err: str
    seconds: float


class Signal(NamedTuple):
    """A signal that a process gets after some seconds."""

    number: int
    seconds: float


def preload() -> None:
    """Import what a run imports."""
    os.environ.update(ENVIRONMENT)
    import matplotlib.pyplot
    import sklearn.datasets
    import tensorflow.python.eager.context as eager

    import nccl_tf.cli
    import nccl_tf.commands.train
    import nccl_tf.experiment.run.loop
    import nccl_tf.reports.figures.run  # noqa: F401
    from nccl_tf.saving import register_classes

    assert matplotlib.pyplot and sklearn.datasets
    register_classes()
    assert not eager.context()._initialized, "TensorFlow runs already, and cannot be forked"


def run_forked(
    argv: list[str], logs: Path, hook: Callable | None = None, later: Signal | None = None
) -> Ended:
    """Run a command line in a child of this process.

    Args:
        argv: The words after the program's name.
        logs: A folder for what it prints.
        hook: An audit hook of the child.
        later: A signal for it.
    """
    paths, start = (logs / "out", logs / "err"), time.monotonic()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _be_the_command(argv, paths, hook)
    code = _wait(child, start, later)
    out, err = (path.read_text("utf-8", "replace") for path in paths)
    return Ended(code, out, err, time.monotonic() - start)


def run_whole(argv: list[str], logs: Path, later: Signal | None = None) -> Ended:
    """Run a command line as `python run.py`; as `run_forked`."""
    paths, start = (logs / "out", logs / "err"), time.monotonic()
    with paths[0].open("wb") as out, paths[1].open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "run.py", *argv], cwd=ROOT, stdout=out, stderr=err
        )
    code = process.returncode = _wait(process.pid, start, later)
    texts = (path.read_text("utf-8", "replace") for path in paths)
    return Ended(code, *texts, time.monotonic() - start)


def _wait(child: int, start: float, later: Signal | None) -> int:
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        passed = time.monotonic() - start
        if later and passed >= later.seconds:
            os.kill(child, later.number)
            later = None
        if passed > MOST_SECONDS:
            os.kill(child, signal.SIGABRT)
        time.sleep(0.01)


def _be_the_command(argv: list[str], paths: tuple[Path, Path], hook: Callable | None) -> None:
    code: object = 70
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for path, number in zip(paths, (1, 2), strict=True):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number)
        sys.argv = ["run.py", *argv]
        from nccl_tf.__main__ import main

        if hook is not None:
            sys.addaudithook(hook)
        main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
