"""A process that makes runs, one after the other: they come on stdin, and it ends with its parent.

The exit code is that of the command: 0 done, 2 bad input, 3 learning that failed, 128 + a signal.
With any but 0 it ends after the run.
"""

import dataclasses
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.errors import LearningFailedError, UserError, format_error
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Plot, Run, no_plots, train_seed
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.records.options import resolve_options

LOG = "worker.log"
"""File in a run's folder that takes what its process prints."""

LEARNING_FAILED = "learning failed: ten steps in a row had no finite loss and gradient"
"""What is said of a run among many whose learning failed."""


def make_run(flag_values: Mapping[str, Any], seed: int, **options: Any) -> Run:
    """The run of flag values, as they are or as JSON gives them back, with its plugins imported.

    The plugins are those that the command line of the parent named.

    Args:
        flag_values: By name; None means the default.
        seed: Its seed.
        **options: Fields of `Options` that hold in place of the flags.

    Raises:
        UserError: A plugin cannot be imported, or a value is bad.
    """
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in flag_values.items()}
    load_plugins(values.get("plugin") or ())
    return Run.from_flags(values, dataclasses.replace(resolve_options(values), **options), seed)


def open_log(folder: Path) -> int:
    """A descriptor that appends to the log in a run's folder, which is no link.

    Raises:
        OSError: It cannot be opened.
    """
    return os.open(folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)


def main(plot: Plot = no_plots) -> int:
    """Make the runs that lines of JSON on stdin name, until there are no more.

    A line is {"flag_values": by name, "seed": number, "options": in place of the flags, "ready":
    descriptor}. A byte is written to the descriptor when the run is made. What the process prints
    goes to the log of the run from the second one on; the first one's is open already.

    Args:
        plot: As for `train_seed`.

    Returns:
        The exit code.
    """
    jobs = _Jobs()
    first = True
    while (job := jobs.take()) is not None:
        code = _make(job, plot, keeps_output=first)
        if code:
            return code
        first = False
        _forget()
        jobs.done(job["ready"])
    return 0


def _make(job: Mapping[str, Any], plot: Plot, keeps_output: bool) -> int:
    try:
        run = make_run(job["flag_values"], job["seed"], **job["options"])
        if not keeps_output:
            _print_to_log(run.folder)
        train_seed(run, plot)
    except Interrupted as interrupted:
        return interrupted.exit_code
    except (UserError, LearningFailedError) as error:
        print(format_error(error), file=sys.stderr)
        return error.exit_code
    return 0


def _print_to_log(folder: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    log = open_log(folder)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)


def _forget() -> None:
    """Drop what Keras keeps of a run: the counts in its names, its seeds and its graphs."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()


class _Jobs:
    """The lines on stdin; at its end the process writes a checkpoint and ends, if it is busy.

    So that a checkpoint is written too when the parent is killed, which cannot say so any more.
    """

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._waits = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self) -> dict[str, Any] | None:
        """The next job; None where there is none."""
        line = self._lines.get()
        return None if line is None else json.loads(line)

    def done(self, descriptor: int) -> None:
        """Say that the job is done."""
        self._waits.set()
        os.write(descriptor, b"\n")

    def _read(self) -> None:
        for line in sys.stdin:
            self._waits.clear()
            self._lines.put(line)
        self._lines.put(None)
        if not self._waits.is_set():
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
