"""A process that makes runs, as the one that starts it sees it."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, cast

from nccl_tf.errors import LearningFailedError, UserError, translate_os_error
from nccl_tf.experiment.launch.worker import LEARNING_FAILED, LOG, open_log
from nccl_tf.experiment.run.train import Run, default_threads, make_folder
from nccl_tf.machine import count_cores, gpu_ids
from nccl_tf.records.record import FILE_NAME

_SOURCE = str(Path(__file__).resolve().parents[3])

Listener = Callable[[Run, dict[str, Any]], None]


def gpus_to_share(run: Run) -> tuple[str, ...]:
    """The GPUs of which each worker takes one; none where the flag names one, or the CPU."""
    device = run.options.device
    if device in ("auto", "gpu"):
        return gpu_ids()
    return ("",) if device.startswith("gpu:") else ()


class Process:
    """A process that makes runs, and what it printed.

    Args:
        run: The first run.
        tries: How often it was started before.
        slot: Its number among the processes at a time, from 0.
        workers: Number of processes at a time.
        listen: As for `run_locally`.
        program: As for `run_locally`.
    """

    def __init__(
        self, run: Run, tries: int, slot: int, workers: int, listen: Listener | None, program: str
    ):
        self.slot, self._workers, self._listen = slot, workers, listen
        self._share = max(1, count_cores() // workers)
        self._is_ready = False
        self.ready, self._ready_in_child = os.pipe()
        os.set_blocking(self.ready, False)
        with self._opened_log(run) as log:
            # A session of its own: a Ctrl-C at the terminal comes to this process alone.
            self.process = subprocess.Popen(
                [sys.executable, "-m", program],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(self._share, gpus_to_share(run), slot),
                start_new_session=True,
                pass_fds=(self._ready_in_child,),
            )
        os.close(self._ready_in_child)
        self.stdin = cast(IO[bytes], self.process.stdin)
        self._send(run, tries)

    def can_make(self, run: Run) -> bool:
        """Whether it can make another run: one that sets TensorFlow up as those before."""
        same = (
            (each.options, each.settings.deterministic, self._threads(each))
            for each in (run, self.run)
        )
        alone = run.settings.distribute or self.run.settings.distribute
        return not alone and len(set(map(repr, same))) == 1

    def make(self, run: Run, tries: int) -> None:
        """Let it make another run."""
        self._opened_log(run).close()
        self._is_ready = False
        with contextlib.suppress(BrokenPipeError):  # It was killed meanwhile, as `poll` will say.
            self._send(run, tries)

    def _opened_log(self, run: Run) -> IO[str]:
        make_folder(run.folder)
        with translate_os_error(run.folder / LOG, "choose another --output_dir"):
            log = os.fdopen(open_log(run.folder), "a")
        self._heard = log.tell()
        return log

    def _threads(self, run: Run) -> int:
        return run.options.threads or default_threads(run.settings, self._share)

    def _send(self, run: Run, tries: int) -> None:
        self.run, self.tries = run, tries
        options: dict[str, Any] = {"threads": self._threads(run), "workers": self._workers}
        if self._listen is not None:
            options["progress"] = "json"
        if tries and not (run.folder / FILE_NAME).exists():
            # It was killed after it had removed the old record: its checkpoint is of this run.
            options["overwrite"] = False
        job = {
            "flag_values": dict(run.flag_values), "seed": run.seed, "options": options,
            "ready": self._ready_in_child,
        }  # fmt: skip
        self.stdin.write(f"{json.dumps(job)}\n".encode())
        self.stdin.flush()

    def is_done(self) -> bool:
        """Whether the run, or the process, has ended; passes on what it has reported since."""
        ended = self.has_ended()
        with contextlib.suppress(BlockingIOError):
            self._is_ready = self._is_ready or bool(os.read(self.ready, 1))
        if self._listen is not None:
            self._pass_events_on(self._listen)
        return ended or self._is_ready

    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def _pass_events_on(self, listen: Listener) -> None:
        with (self.run.folder / LOG).open("rb") as log:
            log.seek(self._heard)
            whole, newline, _ = log.read().rpartition(b"\n")
        self._heard += len(whole + newline)
        for line in whole.splitlines():
            if line.startswith(b'{"event"'):
                listen(self.run, json.loads(line))

    def was_killed(self) -> bool:
        """Whether it ended by a signal, at once or after it wrote a checkpoint."""
        return self.process.returncode < 0 or self.process.returncode > 128

    def problem(self) -> str:
        """Why the run did not finish, "" if it did.

        Raises:
            UserError: It was refused, as every other would be.
        """
        code = self.process.returncode
        if code == 0:
            return ""
        if code == LearningFailedError.exit_code:
            return LEARNING_FAILED
        log = self.run.folder / LOG
        if code == UserError.exit_code:
            lines = log.read_text(errors="replace").splitlines()
            errors = [line for line in lines if line.startswith("error: ")] or [f"see {log}"]
            raise UserError(errors[-1].removeprefix("error: "))
        advice = ", or give fewer --workers if memory ran out" if self.was_killed() else ""
        return f"failed with code {code}, see {log}{advice}"


def _environment(share: int, gpus: Sequence[str], slot: int) -> dict[str, str]:
    """This process's, with where the package is, a share of the cores and one of several GPUs."""
    paths = [_SOURCE, os.environ.get("PYTHONPATH", "")]
    result = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    if share < count_cores():
        for name in ("TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
            result.setdefault(name, str(share))
    if len(gpus) > 1:
        result["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    return result


def stop(started: Sequence[Process]) -> None:
    """Let processes end, as they do when their stdin closes; a run writes a checkpoint first."""
    for process in started:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    for process in started:
        process.process.wait()
        os.close(process.ready)


def kill(started: Sequence[Process]) -> None:
    """End processes at once: a run resumes from its last checkpoint."""
    for process in started:
        process.process.kill()
