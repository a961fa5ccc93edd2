"""Functions in the place of training, for processes that make runs; each notes its process."""

import os
import resource
import signal
import sys
import time

from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.experiment.run.signals import interrupt_requests


def _starts(run):
    path = run.folder.parents[3] / "starts"
    with path.open("a") as file:
        print(os.getpid(), run.settings.learning_rate, run.options.overwrite, file=file)
    return [line.split() for line in path.read_text().splitlines()]


def note(run, console):
    """Ends at once."""
    _starts(run)


def die_once_at_rate_2(run, console):
    """Is killed the first time that the learning rate is 0.2."""
    starts = _starts(run)
    if run.settings.learning_rate == 0.2 and sum(rate == "0.2" for _, rate, _ in starts) == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def die_twice(run, console):
    """Is killed twice."""
    if len(_starts(run)) < 3:
        os.kill(os.getpid(), signal.SIGKILL)


def die(run, console):
    """Is killed every time."""
    _starts(run)
    os.kill(os.getpid(), signal.SIGKILL)


def stop_the_parent_twice(run, console):
    """Sends two signals to the process that started this one, and outlives them if it can."""
    os.kill(os.getppid(), signal.SIGINT)
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(1)
    _starts(run)


def report_until_stopped(run, console):
    """Sends events without end; stopped, it sends some more before it notes that it ended."""
    with interrupt_requests() as request:
        while request.signum is None:
            console.event("step", step=1)
        for _ in range(1000):
            console.event("step", step=1)
    _starts(run)


def refuse(run, console):
    """Says that something is missing."""
    raise UserError("no data in /nowhere")


def diverge(run, console):
    """Says that learning failed."""
    raise LearningFailedError("of this seed")


def fill_the_log(run, console):
    """Breaks on a disk that has no room for the log either."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    raise OSError(28, "No space left on device")


def refuse_on_a_full_disk(run, console):
    """Is refused on a disk that has no room for the log."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    raise UserError("no space in /nowhere")


def print_on_a_full_disk(run, console):
    """Prints where the disk has no room for the log."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    print("a line", flush=True)
    print("a line", file=sys.stderr, flush=True)
