"""Runs on a Ray cluster (https://docs.ray.io): as on one machine, and the same records come back.

A worker that dies is replaced by Ray, which starts its run again; where the machines share the
output folder it resumes from its checkpoint.
"""

import importlib.util
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.experiment.launch.worker import LEARNING_FAILED
from nccl_tf.experiment.run.run_file import write_run_file
from nccl_tf.experiment.run.train import Run, train_seed
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.records.files import write_file
from nccl_tf.records.options import resolve_options
from nccl_tf.records.record import FILE_NAME

RETRIES = 3
"""How often Ray starts a run again whose worker died."""

_PATIENCE = 10.0


def run_on_ray(runs: Sequence[Run], address: str, say: Callable[[str], None]) -> dict[Path, str]:
    """Finish every run on the cluster, one core each, and bring their records here.

    Args:
        runs: With an output folder that exists or can be made.
        address: Of the cluster's head, or "auto".
        say: Takes a line when a run ends.

    Returns:
        Why runs failed, by their folder.

    Raises:
        UserError: The package is missing, there is no cluster at the address, or a run was
            refused.
    """
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            f"--ray_address={address} needs the package ray, which is not installed: install it "
            "with `pip install ray`, or leave the flag out"
        )
    waiting = [run for run in runs if not run.is_finished]
    if not waiting:
        return {}
    _check_answers(address)
    # "auto" may name a head that has ended: one attempt in place of twenty.
    os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "1")
    import ray

    package = str(Path(__file__).resolve().parents[2])
    try:
        ray.init(
            address,
            runtime_env={"py_modules": [package], "env_vars": {"TF_CPP_MIN_LOG_LEVEL": "2"}},
            log_to_driver=False,
            logging_level="ERROR",
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise _no_cluster(address, str(error).splitlines()[0]) from error
    try:
        return _gather(ray, waiting, say)
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Ask the head's port for an answer; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, why: str) -> UserError:
    return UserError(
        f"no Ray cluster answers at --ray_address={address} ({why}): start one with "
        "`ray start --head`, or give the address of its head, such as 10.0.0.1:6379"
    )


def _gather(ray: Any, runs: Sequence[Run], say: Callable[[str], None]) -> dict[Path, str]:
    # A worker makes one run: TensorFlow's state, and its memory, end with it.
    remote = ray.remote(num_cpus=1, max_calls=1, max_retries=RETRIES)(_train)
    output_dir = os.path.abspath(runs[0].options.output_dir)
    tasks = {
        remote.remote(
            {
                **run.flag_values,
                "output_dir": output_dir,
                "threads": run.options.threads or 1,
                "plugin": tuple(_absolute(run.options.plugin)),
            },
            run.seed,
        ): run
        for run in runs
    }
    failed = {}
    waiting = list(tasks)
    while waiting:
        (done,), waiting = ray.wait(waiting)
        run = tasks[done]
        try:
            outcome, content = ray.get(done)
        except ray.exceptions.RayError as error:
            outcome, content = "failed", f"failed, {str(error).splitlines()[0]}".encode()
        if outcome == "refused":
            raise UserError(content.decode())
        if outcome == "failed":
            failed[run.folder] = content.decode()
        elif not run.is_finished:
            write_run_file(run.folder, run.settings, run.seed, run.flag_values)
            write_file(run.folder / FILE_NAME, content)
        left = f"({len(runs) - len(waiting)} of {len(runs)})"
        say(f"{failed.get(run.folder, 'finished')}: {run.folder} {left}")
    return failed


def _absolute(plugins: Sequence[str]) -> list[str]:
    """Names of plugins as a process in another folder finds them."""
    return [os.path.abspath(name) if name.endswith(".py") else name for name in plugins]


def _train(flag_values: Mapping[str, Any], seed: int) -> tuple[str, bytes]:
    """On a worker: the outcome of the run, and its record or the reason."""
    try:
        load_plugins(flag_values["plugin"])
        run = Run.from_flags(flag_values, resolve_options(flag_values), seed)
        train_seed(run)
    except UserError as error:
        return "refused", str(error).encode()
    except LearningFailedError:
        return "failed", LEARNING_FAILED.encode()
    return "finished", (run.folder / FILE_NAME).read_bytes()
