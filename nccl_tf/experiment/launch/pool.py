"""Many runs, each in a process of its own: side by side on this machine, or on a Ray cluster."""

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from nccl_tf.errors import LearningFailedError, UserError, translate_os_error
from nccl_tf.experiment.launch.ray import run_on_ray
from nccl_tf.experiment.launch.worker import LEARNING_FAILED
from nccl_tf.experiment.run.machine import count_cores, default_threads, free_memory, gpu_ids
from nccl_tf.experiment.run.memory_check import process_bytes
from nccl_tf.experiment.run.run_file import check_run_plugins
from nccl_tf.experiment.run.signals import Interrupted, interrupt_requests
from nccl_tf.experiment.run.train import Run, make_folder

RETRIES = 2
"""How often a run is started again whose process was killed."""

LOG = "worker.log"
"""File in a run's folder that takes what its process prints."""

WORKER = "nccl_tf.experiment.launch.worker"
_PAUSE = 0.05
_SOURCE = str(Path(__file__).resolve().parents[3])

Listener = Callable[[Run, dict[str, Any]], None]


def finish(
    runs: Sequence[Run], flag_values: Mapping[str, Any], say: Callable[[str], None]
) -> dict[Path, str]:
    """Finish every run where `--workers` and `--ray_address` say.

    Args:
        runs: Those that are finished already are not run again.
        flag_values: By name; None means the default.
        say: Takes a line when a run ends.

    Returns:
        Why runs failed, by their folder.

    Raises:
        UserError: A flag is out of range, there is no such cluster, a run was refused, or a plugin
            has changed since a run was begun.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    for run in runs:
        run.check_plugins()
    if flag_values["ray_address"] is not None:
        failed = run_on_ray(runs, flag_values["ray_address"], say)
    else:
        failed = run_locally(runs, choose_workers(runs, flag_values["workers"]), say)
    # A plugin's file may have changed while runs were started.
    for run in runs:
        check_run_plugins(run.folder, run.options.plugin)
    return failed


def choose_workers(runs: Sequence[Run], asked: int | None) -> int:
    """How many of the runs are made at a time on this machine.

    Args:
        runs: All of them.
        asked: The value of `--workers`; None for as many as there is room for.

    Raises:
        UserError: Several are asked for, and a run is spread over the machine's devices itself.
    """
    waiting = [run for run in runs if not run.is_finished]
    distributed = [run for run in runs if run.settings.distribute is not None]
    if distributed:
        if asked is not None and asked > 1:
            raise UserError(
                f"--workers={asked} with --distribute={distributed[0].settings.distribute}: a run "
                "over several devices takes all of them; leave one of the two flags out"
            )
        return 1
    if asked is not None or len(waiting) < 2:
        return max(1, min(asked or 1, len(waiting)))
    return default_workers(
        len(waiting),
        cores=count_cores(),
        gpus=len(_gpus_to_share(waiting[0])),
        free_bytes=free_memory(),
        run_bytes=max(process_bytes(run.settings) for run in waiting),
    )


def default_workers(waiting: int, *, cores: int, gpus: int, free_bytes: int, run_bytes: int) -> int:
    """Processes for runs that wait: one for each GPU or else for each core, as memory allows.

    Args:
        waiting: Number of runs.
        cores: CPU cores.
        gpus: GPUs; 0 where the runs use none.
        free_bytes: Memory that is free.
        run_bytes: Memory that a run takes.

    Returns:
        1 or more.
    """
    return max(1, min(waiting, cores, gpus or cores, free_bytes // run_bytes))


def _gpus_to_share(run: Run) -> tuple[str, ...]:
    """The GPUs of which each worker takes one; none where the flag names one, or the CPU."""
    device = run.options.device
    if device in ("auto", "gpu"):
        return gpu_ids()
    return ("",) if device.startswith("gpu:") else ()


def run_locally(
    runs: Sequence[Run],
    workers: int,
    say: Callable[[str], None],
    listen: Listener | None = None,
    program: str = WORKER,
) -> dict[Path, str]:
    """Finish every run; one whose process is killed goes on from its checkpoint.

    Args:
        runs: With an output folder that exists or can be made.
        workers: Processes at a time.
        say: Takes a line when a run ends.
        listen: Takes the events that a run reports, as `Console` prints them with "json".
        program: Module that a process runs, which calls `worker.main`.

    Returns:
        Why runs failed, by their folder: learning that failed, or a process that was killed
        three times.

    Raises:
        UserError: A run was refused.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    waiting = deque((run, 0) for run in runs if not run.is_finished)
    total, failed = len(waiting), {}
    started: list[_Process] = []
    with interrupt_requests() as request:
        try:
            while waiting or started:
                while waiting and len(started) < workers:
                    slot = min(set(range(workers)) - {process.slot for process in started})
                    run, tries = waiting.popleft()
                    started.append(_Process(run, tries, slot, workers, listen, program))
                for process in [process for process in started if process.has_ended()]:
                    started.remove(process)
                    if process.was_killed() and process.tries < RETRIES:
                        say(f"killed, and started again: {process.run.folder}")
                        waiting.appendleft((process.run, process.tries + 1))
                        continue
                    problem = process.problem()
                    if problem:
                        failed[process.run.folder] = problem
                    done = total - len(waiting) - len(started)
                    say(f"{problem or 'finished'}: {process.run.folder} ({done} of {total})")
                if request.signum is not None:
                    raise Interrupted(request.signum)
                time.sleep(_PAUSE)
        finally:
            _stop(started)
    return failed


class _Process:
    """A process that makes one run, and what it printed.

    Args:
        run: The run.
        tries: How often it was started before.
        slot: Its number among the processes at a time, from 0.
        workers: Number of processes at a time.
        listen: As for `run_locally`.
        program: As for `run_locally`.
    """

    def __init__(
        self, run: Run, tries: int, slot: int, workers: int, listen: Listener | None, program: str
    ):
        self.run, self.tries, self.slot, self._listen = run, tries, slot, listen
        share = max(1, count_cores() // workers)
        options: dict[str, Any] = {
            "threads": run.options.threads or default_threads(run.settings, share),
            "workers": workers,
        }
        if listen is not None:
            options["progress"] = "json"
        make_folder(run.folder)
        path = run.folder / LOG
        with translate_os_error(path, "choose another --output_dir"):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o644)
        with os.fdopen(descriptor, "a") as log:
            self._heard = log.tell()
            # A session of its own: a Ctrl-C at the terminal comes to this process alone.
            self.process = subprocess.Popen(
                [sys.executable, "-m", program],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(share, _gpus_to_share(run), slot),
                start_new_session=True,
            )
        job = {"flag_values": dict(run.flag_values), "seed": run.seed, "options": options}
        self.stdin = cast(IO[bytes], self.process.stdin)
        self.stdin.write(f"{json.dumps(job)}\n".encode())
        self.stdin.flush()

    def has_ended(self) -> bool:
        """Whether the process has ended; passes on what it has reported since the last call."""
        ended = self.process.poll() is not None
        if self._listen is not None:
            self._pass_events_on(self._listen)
        return ended

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


def _stop(started: Sequence[_Process]) -> None:
    """Let runs write a checkpoint and end, as they do when their stdin closes."""
    for process in started:
        process.stdin.close()
    for process in started:
        process.process.wait()
