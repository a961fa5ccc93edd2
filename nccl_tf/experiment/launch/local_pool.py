"""Runs side by side on this machine, each in a process of its own."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.experiment.launch.worker import LEARNING_FAILED
from nccl_tf.experiment.run.signals import Interrupted, interrupt_requests
from nccl_tf.experiment.run.train import Run, make_folder

RETRIES = 2
"""How often a run is started again whose process was killed."""

LOG = "trial.log"
_PAUSE = 0.05
_SOURCE = str(Path(__file__).resolve().parents[3])


class _Started(NamedTuple):
    run: Run
    process: subprocess.Popen
    tries: int


def run_locally(runs: Sequence[Run], workers: int, say: Callable[[str], None]) -> dict[Path, str]:
    """Finish every run; one whose process is killed goes on from its checkpoint.

    Args:
        runs: With an output folder that exists or can be made.
        workers: Processes at a time.
        say: Takes a line when a run ends.

    Returns:
        Why runs failed, by their folder: learning that failed, or a process that was killed
        three times.

    Raises:
        UserError: A run was refused.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    waiting = deque((run, 0) for run in runs if not run.is_finished)
    total, failed = len(waiting), {}
    started: list[_Started] = []
    with interrupt_requests() as request:
        try:
            while waiting or started:
                while waiting and len(started) < workers:
                    started.append(_start(*waiting.popleft(), workers))
                for one in [one for one in started if one.process.poll() is not None]:
                    started.remove(one)
                    if _was_killed(one.process.returncode) and one.tries < RETRIES:
                        say(f"killed, and started again: {one.run.folder}")
                        waiting.appendleft((one.run, one.tries + 1))
                        continue
                    problem = _problem(one)
                    if problem:
                        failed[one.run.folder] = problem
                    left = len(waiting) + len(started)
                    say(f"{problem or 'finished'}: {one.run.folder} ({total - left} of {total})")
                if request.signum is not None:
                    raise Interrupted(request.signum)
                time.sleep(_PAUSE)
        finally:
            _stop(started)
    return failed


def _start(run: Run, tries: int, workers: int) -> _Started:
    make_folder(run.folder)
    with (run.folder / LOG).open("a") as log:
        # A session of its own: a Ctrl-C at the terminal comes to this process alone.
        process = subprocess.Popen(
            [sys.executable, "-m", "nccl_tf.experiment.launch.worker"],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=_environment(workers),
            start_new_session=True,
        )
    job = {"given": dict(run.given), "seed": run.seed}
    process.stdin.write(f"{json.dumps(job)}\n".encode())
    process.stdin.flush()
    return _Started(run, process, tries)


def _environment(workers: int) -> dict[str, str]:
    """This process's, with where the package is, and an equal share of the cores."""
    paths = [_SOURCE, os.environ.get("PYTHONPATH", "")]
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    share = str(max(1, (os.cpu_count() or 1) // workers))
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        if workers > 1:
            own.setdefault(name, share)
    return own


def _was_killed(code: int) -> bool:
    """Whether a process ended by a signal, at once or after it wrote a checkpoint."""
    return code < 0 or code > 128


def _problem(one: _Started) -> str:
    """Why a run did not finish, "" if it did.

    Raises:
        UserError: It was refused, as every other would be.
    """
    code = one.process.returncode
    if code == 0:
        return ""
    if code == UserError.exit_code:
        lines = (one.run.folder / LOG).read_text(errors="replace").splitlines() or [""]
        raise UserError(lines[-1].removeprefix("error: "))
    if code == LearningFailedError.exit_code:
        return LEARNING_FAILED
    return f"failed with code {code}, see {one.run.folder / LOG}"


def _stop(started: Sequence[_Started]) -> None:
    """Let runs write a checkpoint and end, as they do when their stdin closes."""
    for one in started:
        one.process.stdin.close()
    for one in started:
        one.process.wait()
