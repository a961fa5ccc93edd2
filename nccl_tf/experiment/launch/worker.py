"""A process that makes runs, one after the other, and ends with the one that started it."""

import contextlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nccl_tf.errors import LearningFailedError, UserError, format_error, named_error, one_line
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Run
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.standard_streams import keep_standard_streams

LOG = "worker.log"
"""File in a run's folder that takes what its process prints."""

LEARNING_FAILED = "learning failed: ten steps in a row had no finite loss and gradient"
"""What is said of a run among many whose learning failed."""

BROKE = "broke"
"""How a run ended whose process ends by an error that is no sentence."""

Make = Callable[[Run, Console], object]
"""Makes a run, and tells a console how it goes."""


def open_log(folder: Path) -> int:
    """A descriptor that appends to the log in a run's folder, which is no link and no pipe.

    Raises:
        OSError: It cannot be opened.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(folder / LOG, flags, 0o644)


def work(connection: Connection, environment: Mapping[str, str], make: Make) -> None:
    """Make the runs that come, until the connection closes; the process exits with 128 + a signal.

    Each comes with whether its events are asked for. They go back as dicts, and its end as a pair:
    whether it finished, failed, was refused or broke, and why. The run's log takes what it prints.

    Args:
        connection: To the process that started this one.
        environment: Variables to set before TensorFlow is imported.
        make: As for `run_locally`.
    """
    os.setsid()  # A Ctrl-C at the terminal comes to the other process alone.
    os.environ.update(environment)
    keep_standard_streams()
    jobs = _Jobs(connection)
    while (job := jobs.take()) is not None:
        run, listens = job
        _print_to_log(run.folder)
        console = _Reports(connection) if listens else Console(run.options.progress)
        try:
            load_plugins(run.options.plugin)
            make(run, console)
            end = "finished", ""
        except Interrupted as interrupted:
            sys.exit(interrupted.exit_code)
        except UserError as error:
            print(format_error(error), file=sys.stderr)
            end = "refused", str(error)
        except LearningFailedError as error:
            print(format_error(error), file=sys.stderr)
            end = "failed", LEARNING_FAILED
        except Exception as error:
            # Said here too, because the log stays empty on a full disk.
            jobs.done((BROKE, one_line(named_error(error))))
            raise
        _forget()
        jobs.done(end)


class _Reports(Console):
    """Passes events on to the process that started this one.

    Args:
        connection: To it.
    """

    def __init__(self, connection: Connection):
        super().__init__("plain")
        self._connection = connection

    def event(self, kind: str, **values: Any) -> None:
        # A run that is stopped goes on to its checkpoint, though nobody listens any more.
        with contextlib.suppress(OSError):
            self._connection.send({"event": kind, **values})


def _print_to_log(folder: Path) -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    log = open_log(folder)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)


def _forget() -> None:
    """Drop what Keras keeps of a run: the counts in its names, its seeds and its graphs."""
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()


class _Jobs:
    """What comes through the connection; at its end a busy process writes a checkpoint and ends.

    So that a checkpoint is written too when the parent is killed, which cannot say so any more.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._received: queue.SimpleQueue[tuple[Run, bool] | None] = queue.SimpleQueue()
        self._waits = threading.Event()
        threading.Thread(target=self._receive, daemon=True).start()

    def take(self) -> tuple[Run, bool] | None:
        """The next job; None where there is none."""
        return self._received.get()

    def done(self, end: tuple[str, str]) -> None:
        """Say how the job ended."""
        self._waits.set()
        with contextlib.suppress(OSError):
            self._connection.send(end)

    def _receive(self) -> None:
        try:
            while True:
                job = self._connection.recv()
                self._waits.clear()
                self._received.put(job)
        except (EOFError, OSError):
            self._received.put(None)
            if not self._waits.is_set():
                os.kill(os.getpid(), signal.SIGTERM)
