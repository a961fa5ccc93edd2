"""Many runs in processes of their own: side by side on this machine, or on a Ray cluster."""

import contextlib
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.experiment.launch.ray import run_on_ray
from nccl_tf.experiment.launch.worker import BROKE, LOG, Make, open_log, work
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.memory_check import process_bytes
from nccl_tf.experiment.run.run_file import check_run_plugins
from nccl_tf.experiment.run.signals import Interrupted, interrupt_requests
from nccl_tf.experiment.run.train import Run, default_threads, make_folder, train_seed
from nccl_tf.machine import count_cores, free_memory, gpu_ids
from nccl_tf.records.record import FILE_NAME, read_result

Listener = Callable[[Run, dict[str, Any]], None]

RETRIES = 2
"""How often a run is started again whose process was killed."""

_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 0.2
"""Seconds between two looks at signals."""


def finish(
    runs: Sequence[Run],
    flag_values: Mapping[str, Any],
    say: Callable[[str], None],
    listen: "Listener | None" = None,
) -> dict[Path, str]:
    """Finish every run where `--workers` and `--ray_address` say.

    Args:
        runs: Those that are finished already are not run again.
        flag_values: By name; None means the default.
        say: Takes a line when a run ends.
        listen: As for `run_locally`; of runs on Ray it hears nothing.

    Returns:
        Why runs failed, by their folder.

    Raises:
        UserError: A flag is out of range, there is no such cluster, a run was refused, the record
            of one is broken, or a plugin has changed since a run was begun.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    for run in runs:
        run.check_plugins()
        if run.is_finished:
            # Here, because a broken record is no result, and yet stands for a run that is finished.
            read_result(run.folder, run.settings, run.seed)
    if flag_values["ray_address"] is not None:
        failed = run_on_ray(runs, flag_values["ray_address"], say)
    else:
        failed = run_locally(runs, choose_workers(runs, flag_values["workers"]), say, listen)
    # A plugin's file may have changed while runs were started.
    for run in runs:
        check_run_plugins(run.folder, run.options.plugin)
    return failed


def choose_workers(runs: Sequence[Run], asked: int | None) -> int:
    """How many of the runs are made at a time on this machine.

    Args:
        runs: All of them.
        asked: The value of `--workers`; None for as many as fit.

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
    if any(run.options.device.startswith("gpu") for run in waiting) and not gpu_ids():
        return 1  # In this process, where TensorFlow refuses before a folder is made.
    if asked is not None or len(waiting) < 2:
        return max(1, min(asked or 1, len(waiting)))
    return default_workers(
        len(waiting),
        cores=count_cores(),
        gpus=len(gpus_to_share(waiting[0])),
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


def gpus_to_share(run: Run) -> tuple[str, ...]:
    """The GPUs of which each worker takes one; none where the flag names one, or the CPU."""
    device = run.options.device
    if device in ("auto", "gpu"):
        return gpu_ids()
    return ("",) if device.startswith("gpu:") else ()


def train_and_print(run: Run, console: Console) -> None:
    """Make a run without pictures."""
    train_seed(run, console=console)


def run_locally(
    runs: Sequence[Run],
    workers: int,
    say: Callable[[str], None],
    listen: Listener | None = None,
    make: Make = train_and_print,
) -> dict[Path, str]:
    """Finish every run; one whose process is killed resumes from its checkpoint.

    A process makes one run after the other, as long as they start TensorFlow in the same way.

    Args:
        runs: With an output folder that exists or can be made.
        workers: Processes at a time.
        say: Takes a line when a run ends.
        listen: Takes the events that a run reports, as `Console` prints them with "json".
        make: Makes a run in a process; a function of a module, which that process imports.

    Returns:
        Why runs failed, by their folder: learning that failed, or a process that was killed
        three times.

    Raises:
        UserError: A run was refused.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    waiting = deque((run, 0) for run in runs if not run.is_finished)
    total, failed = len(waiting), {}
    ended = 0
    started: list[_Worker] = []
    with interrupt_requests(before_exit=lambda: _kill(started)) as request:
        try:
            while waiting or started:
                while waiting and len(started) < workers:
                    slot = min(set(range(workers)) - {worker.slot for worker in started})
                    started.append(_Worker(waiting[0][0], slot, workers, make))
                    started[-1].begin(*waiting.popleft(), listens=listen is not None)
                for worker in _with_news(started):
                    run, news = worker.run, worker.news()
                    if isinstance(news, dict):
                        if listen is not None:
                            listen(run, news)
                        continue
                    if news is None and worker.was_killed() and worker.tries < RETRIES:
                        say(f"killed, and started again: {run.folder}")
                        waiting.appendleft((run, worker.tries + 1))
                        _stop([worker])
                        started.remove(worker)
                        continue
                    problem = worker.problem() if news is None else _problem(*news)
                    if problem:
                        failed[run.folder] = problem
                    ended += 1
                    say(f"{problem or 'finished'}: {run.folder} ({ended} of {total})")
                    if news and waiting and worker.can_make(waiting[0][0]):
                        worker.begin(*waiting.popleft(), listens=listen is not None)
                    else:
                        _stop([worker])
                        started.remove(worker)
                if request.signum is not None:
                    raise Interrupted(request.signum)
        finally:
            _stop(started)
    return failed


def _problem(outcome: str, why: str) -> str:
    """Why a run did not finish; "" if it did.

    Raises:
        UserError: It was refused, as every other would be.
    """
    if outcome == "refused":
        raise UserError(why)
    return why


class _Worker:
    """A process that makes runs.

    Args:
        run: The first run.
        slot: Its number among the processes at a time, from 0.
        workers: Number of processes at a time.
        make: As for `run_locally`.
    """

    def __init__(self, run: Run, slot: int, workers: int, make: Make):
        self.slot, self._workers, self._reason = slot, workers, ""
        self._share = max(1, count_cores() // workers)
        self.connection, theirs = _SPAWN.Pipe()
        environment = _environment(self._share, gpus_to_share(run), slot)
        self.process = _SPAWN.Process(target=work, args=(theirs, environment, make))
        self.process.start()
        theirs.close()

    def can_make(self, run: Run) -> bool:
        """Whether it can make another run: one that sets TensorFlow up as those before."""
        same = (
            (each.options, each.settings.deterministic, self._threads(each))
            for each in (run, self.run)
        )
        alone = run.settings.distribute or self.run.settings.distribute
        return not alone and len(set(map(repr, same))) == 1

    def begin(self, run: Run, tries: int, *, listens: bool) -> None:
        """Let it make a run that was started so many times before."""
        self.run, self.tries = run, tries
        make_folder(run)
        with translate_os_error(run.folder / LOG, "choose another --output_dir"):
            os.close(open_log(run.folder))
        # Killed after it had removed the old record, it resumes: its checkpoint is of this run.
        resumes = tries and not (run.folder / FILE_NAME).exists()
        options = replace(
            run.options,
            threads=self._threads(run),
            workers=self._workers,
            overwrite=run.options.overwrite and not resumes,
        )
        with contextlib.suppress(OSError):  # It was killed meanwhile, as `news` will say.
            self.connection.send((run._replace(options=options), listens))

    def _threads(self, run: Run) -> int:
        return run.options.threads or default_threads(run.settings, self._share)

    def news(self) -> dict[str, Any] | tuple[str, str] | None:
        """An event, or how the run ended; None where the process has ended."""
        with contextlib.suppress(EOFError, OSError):
            received = self.connection.recv()
            if isinstance(received, dict) or received[0] != BROKE:
                return received
            self._reason = f" ({received[1]})"
        self.process.join()
        return None

    def was_killed(self) -> bool:
        """Whether the process ended by a signal, at once or after it wrote a checkpoint."""
        code = self.process.exitcode or 0
        return code < 0 or code > 128

    def problem(self) -> str:
        """Why the process did not finish its run."""
        advice = ", or give fewer --workers if memory ran out" if self.was_killed() else ""
        code, log = self.process.exitcode, self.run.folder / LOG
        return f"failed with code {code}{self._reason}, see {log}{advice}"


def _with_news(started: Sequence[_Worker]) -> list[_Worker]:
    """The processes that have said something, or ended; none after a while, to look at signals."""
    ready = wait([worker.connection for worker in started], _PATIENCE)
    return [worker for worker in started if worker.connection in ready]


def _environment(share: int, gpus: Sequence[str], slot: int) -> dict[str, str]:
    """A share of the cores, where the user has set none, and one of several GPUs."""
    result = {}
    if share < count_cores():
        names = ("TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
        result = {name: str(share) for name in names if name not in os.environ}
    if len(gpus) > 1:
        result["CUDA_VISIBLE_DEVICES"] = gpus[slot % len(gpus)]
    return result


def _stop(started: Sequence[_Worker]) -> None:
    """Let processes end, as they do when the connection closes; a run writes a checkpoint first."""
    for worker in started:
        worker.connection.close()
    for worker in started:
        worker.process.join()


def _kill(started: Sequence[_Worker]) -> None:
    """End processes at once: a run resumes from its last checkpoint."""
    for worker in started:
        worker.process.kill()
