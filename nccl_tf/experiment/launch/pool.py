"""Many runs in processes of their own: side by side on this machine, or on a Ray cluster."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.experiment.launch.process import Listener, Process, gpus_to_share, kill, stop
from nccl_tf.experiment.launch.ray import run_on_ray
from nccl_tf.experiment.run.memory_check import process_bytes
from nccl_tf.experiment.run.run_file import check_run_plugins
from nccl_tf.experiment.run.signals import Interrupted, interrupt_requests
from nccl_tf.experiment.run.train import Run
from nccl_tf.machine import count_cores, free_memory
from nccl_tf.records.record import read_result

RETRIES = 2
"""How often a run is started again whose process was killed."""

WORKER = "nccl_tf.experiment.launch.worker"
_PAUSE = 0.05


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
        failed = run_locally(runs, choose_workers(runs, flag_values["workers"]), say)
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


def run_locally(
    runs: Sequence[Run],
    workers: int,
    say: Callable[[str], None],
    listen: Listener | None = None,
    program: str = WORKER,
) -> dict[Path, str]:
    """Finish every run; one whose process is killed resumes from its checkpoint.

    A process makes one run after the other, as long as they start TensorFlow in the same way.

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
    total, done, failed = len(waiting), 0, {}
    started: list[Process] = []
    with interrupt_requests(before_exit=lambda: kill(started)) as request:
        try:
            while waiting or started:
                while waiting and len(started) < workers:
                    slot = min(set(range(workers)) - {process.slot for process in started})
                    run, tries = waiting.popleft()
                    started.append(Process(run, tries, slot, workers, listen, program))
                for process in [process for process in started if process.is_done()]:
                    run, problem = process.run, ""
                    if process.has_ended():
                        started.remove(process)
                        stop([process])
                        if process.was_killed() and process.tries < RETRIES:
                            say(f"killed, and started again: {run.folder}")
                            waiting.appendleft((run, process.tries + 1))
                            continue
                        problem = process.problem()
                    elif waiting and process.can_make(waiting[0][0]):
                        process.make(*waiting.popleft())
                    else:
                        started.remove(process)
                        stop([process])
                    if problem:
                        failed[run.folder] = problem
                    done += 1
                    say(f"{problem or 'finished'}: {run.folder} ({done} of {total})")
                if request.signum is not None:
                    raise Interrupted(request.signum)
                time.sleep(_PAUSE)
        finally:
            stop(started)
    return failed
