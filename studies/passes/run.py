"""One run of the study, and workers that share all runs among them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.provenance import package_source
from nccl_tf.whole_files import replaced
from studies.passes import check, data
from studies.passes.plan import DATA, PLAN, SYSTEMS, Cell, Job, Row, jobs, trials

CLAIM, RESULT = ".claim", ".json"
_WAIT = 0.5


@dataclass(frozen=True)
class Places:
    """Where things are.

    Args:
        runs: The folder of results, a file each.
        made: The folder of what `--make_data` makes.
        features: The folder of the features of `studies.pretrained`.
    """

    runs: Path
    made: Path
    features: Path

    def cut(self, name: str, tuning: bool) -> data.Cut:
        """The examples of a data set."""
        made = {**data.DATA, **check.DATA}[name]
        return made(tuning, self.features if name == "features" else self.made)


def network_of(cell: Cell, stream: nccl_tf.Stream, seed: int) -> keras.Model:
    """From inputs [n, width] or images to a logit for each class, or to the number."""
    if "hidden" not in DATA[cell.data]:
        return nccl_tf.networks.resnet18_reduced(
            stream.example_shape, stream.num_classes, seed=seed
        )
    hidden = [keras.layers.Dense(units, "relu") for units in DATA[cell.data]["hidden"]]
    outputs = 1 if cell.regresses else stream.num_classes
    return keras.Sequential(
        [keras.Input(stream.example_shape), *hidden, keras.layers.Dense(outputs)]
    )


def memory_of(cell: Cell, stream: nccl_tf.Stream, seed: int) -> Any:
    """The memory of a cell: a number of examples, or a balanced one; None without."""
    if cell.share is None:
        return None
    count = round(cell.share * sum(task.num_train for task in stream))
    if SYSTEMS[cell.system].get("balanced"):
        return nccl_tf.BalancedMemory(count, stream.task_classes, seed=seed)
    return count


def run(job: Job, cut: data.Cut) -> Row:
    """Make a run.

    Args:
        job: The run, with its rate.
        cut: Its examples.

    Returns:
        Its key with the figures; with a "problem" in their place where it could not be learned.
    """
    cell, seed = job.cell, job.seed
    system, curve = SYSTEMS[cell.system], DATA[cell.data].get("curve")
    method, stream = METHODS[system["method"]], cut.stream(seed)
    keras.utils.set_random_seed(seed)
    options = dict(system.get("options", {}))
    if method.memory and method.memory_batch:
        options.setdefault("memory_batch_size", PLAN["batch_size"])
    own = {row.name: row.default for row in method.hyperparameters if row.part == "optimizer"}
    metric: Any = "mean_absolute_error" if cell.regresses else None
    begin = time.process_time()
    try:
        learner = nccl_tf.create(
            method.name, network_of(cell, stream, seed), stream,
            memory_of(cell, stream, seed), seed=seed, **options,
        )  # fmt: skip
        loss = {"loss": "mean_squared_error"} if cell.regresses else {}
        learner.compile(keras.optimizers.SGD(job.rate, **own), **loss)
        if curve:
            metric = keras.metrics.AUC(curve=curve)
        result = nccl_tf.learn(
            learner, stream, batch_size=PLAN["batch_size"], epochs=cell.passes, seed=seed,
            joint=method.joint, metric=metric, verbose=0,
        )  # fmt: skip
    except (UserError, LearningFailedError) as error:
        return {**job.key(), "problem": str(error)}
    return {
        **job.key(),
        "value": result.average_accuracy,
        "forgetting": None if method.joint else result.forgetting,
        "learned": None if method.joint else result.learning_accuracy,
        "seconds": round(time.process_time() - begin, 2),
        "bytes_stored": result.bytes_stored,
        "examples_passed": result.examples_passed,
        "commit": package_source()["commit"],
    }


# ---- many runs -----------------------------------------------------------------------------------


def work(places: Places, until: float, only: str | None = None) -> None:
    """Make runs that nobody has made or claimed, until none is left or the time is over.

    Args:
        places: Where things are.
        until: Seconds of `time.time`.
        only: A data set; None for all.
    """
    known: dict[str, Row] = {}
    cuts: dict[tuple[str, bool], data.Cut] = {}
    while time.time() < until:
        for path in places.runs.glob(f"*{RESULT}"):
            if path.stem not in known:
                known[path.stem] = json.loads(path.read_text())
        left = [job for job in jobs(known) if job.name not in known]
        left = [job for job in left if only in (None, job.cell.data)]
        if not left:
            return
        job = next((job for job in left if job.rate is not None and _claim(places, job)), None)
        if job is None:
            if all(job.rate is None and _is_hopeless(job, known) for job in left):
                return
            time.sleep(_WAIT)
            continue
        where = (job.cell.data, job.part == "tuning")
        if where not in cuts:
            cuts[where] = places.cut(*where)
        row = run(job, cuts[where])
        if "problem" in row:
            print(f"{job.name}: {row['problem']}", file=sys.stderr, flush=True)
        with replaced(places.runs / f"{job.name}{RESULT}", RESULT) as temporary:
            temporary.write_text(json.dumps(row) + "\n")
        keras.backend.clear_session()


def _claim(places: Places, job: Job) -> bool:
    """Whether this process is the first to take a run."""
    try:
        (places.runs / f"{job.name}{CLAIM}").open("x").close()
    except FileExistsError:
        return False
    return True


def _is_hopeless(job: Job, known: Mapping[str, Row]) -> bool:
    """Whether no trial of its cell could be learned with."""
    return all("problem" in known.get(trial.name, {}) for trial in trials(job.cell))


def use_one_thread() -> None:
    """One thread for operations, as each of many processes has."""
    for which in ("intra", "inter"):
        getattr(tf.config.threading, f"set_{which}_op_parallelism_threads")(1)


def launch(words: list[str], runs: Path, workers: int, seconds: float) -> int:
    """Start workers and end them after a time.

    Args:
        words: Of the command, which each worker gets.
        runs: The folder of results.
        workers: How many.
        seconds: After which they are ended; what they have not finished is made again.

    Returns:
        How many runs are finished.
    """
    runs.mkdir(parents=True, exist_ok=True)
    for path in runs.glob(f"*{CLAIM}"):  # of processes that were ended
        path.unlink()
    until = time.time() + seconds
    command = [sys.executable, "-m", "studies.passes", *words, f"--until={until}"]
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", **os.environ}
    started = [subprocess.Popen(command, env=environment) for _ in range(workers)]
    try:
        while any(process.poll() is None for process in started) and time.time() < until:
            time.sleep(_WAIT)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait()
    return len(list(runs.glob(f"*{RESULT}")))
