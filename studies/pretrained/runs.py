"""The runs of plan.toml: which are wanted, one of them, and their results.

Any number of processes may make the runs together: each claims a run before it begins, by a lock
that ends with the process.
"""

import contextlib
import hashlib
import itertools
import json
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import nccl_tf
from nccl_tf.errors import UserError, format_error
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.files import lock_of
from nccl_tf.records.provenance import describe_devices
from studies.pretrained.features import Features

HERE = Path(__file__).parent
RESULTS = HERE / "results.jsonl"
PLAN: Mapping[str, Any] = tomllib.loads((HERE / "plan.toml").read_text())
NETWORKS = {"efficientnet": "EfficientNet-Lite0", "dinov2": "DINOv2-small"}
FIGURES = ("accuracy", "forgetting", "seconds", "bytes_stored", "examples_passed")
_RATE = "learning_rate"
_PAUSE = 2.0
"""Seconds until a process looks again for runs that wait for those of others."""

Row = dict[str, Any]


class Cell(NamedTuple):
    """A row of the tables.

    Args:
        passes: Over each task.
        network: Its name.
        system: Its table in the plan.
    """

    passes: int
    network: str
    system: Row

    def key(self, seed: int, numbers: Row) -> Row:
        """What tells a result from the others."""
        return {
            "network": self.network, "system": self.system["name"], "passes": self.passes,
            "seed": seed, "numbers": numbers,
        }  # fmt: skip


class Wanted(NamedTuple):
    """A run that has no result.

    Args:
        cell: The row that it is for.
        key: What it is of.
        part: "tuning" or "evaluated" of the plan.
    """

    cell: Cell
    key: Row
    part: str


class Results:
    """Results by their keys.

    Args:
        paths: Files of them; of a key that is in several the first one counts.
    """

    def __init__(self, paths: Iterable[Path]):
        self.rows: dict[str, Row] = {}
        for path in paths:
            for line in path.read_text().splitlines() if path.exists() else ():
                row = json.loads(line)
                self.rows.setdefault(_text(row), row)

    def found(self, key: Row) -> Row | None:
        """The result of a key; None where it is missing."""
        return self.rows.get(_text(key))


def _text(key: Row) -> str:
    parts = {name: key[name] for name in ("network", "system", "passes", "seed", "numbers")}
    return json.dumps(parts, sort_keys=True)


def cells() -> Iterator[Cell]:
    """Every row of the tables, in the order of the runs."""
    for passes, network, system in itertools.product(PLAN["passes"], NETWORKS, PLAN["systems"]):
        of_system = system.get("networks", list(NETWORKS))
        if passes in system.get("passes", PLAN["passes"]) and network in of_system:
            yield Cell(passes, network, system)


# ---- tuning --------------------------------------------------------------------------------------


def points(results: Results, cell: Cell) -> list[Row]:
    """The points of a system's grid; of rates those that the results so far ask for."""
    grid = cell.system["grid"]
    if grid.get(_RATE) == "rates":
        return [{_RATE: rate} for rate in _rates(results, cell)]
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _rates(results: Results, cell: Cell) -> Sequence[float]:
    """The first rates, and the next ones as long as the best of all is at an end."""
    ladder = PLAN["rates"]
    first = [ladder.index(rate) for rate in PLAN["first_rates"]]
    low, high = first[0], first[-1]
    while True:
        tried = [_tuned(results, cell, {_RATE: rate}) for rate in ladder[low : high + 1]]
        if None in tried:
            break
        best = low + int(np.argmax(tried))
        if best == low > 0:
            low -= 1
        elif best == high < len(ladder) - 1:
            high += 1
        else:
            break
    return ladder[low : high + 1]


def _tuned(results: Results, cell: Cell, numbers: Row) -> float | None:
    """The accuracy of a point on the classes held out; None before it is tried."""
    row = results.found(cell.key(PLAN["tuning_seed"], numbers))
    return None if row is None else row["accuracy"] or 0.0  # One that diverged has none.


def chosen(results: Results, cell: Cell) -> Row | None:
    """The numbers that tuning chose, the first of equally good ones; None before all are tried.

    A grid of one point has nothing to choose.
    """
    grid = points(results, cell)
    if len(grid) == 1:
        return grid[0]
    tried = [_tuned(results, cell, numbers) for numbers in grid]
    return None if None in tried else grid[int(np.argmax(tried))]


# ---- what is wanted ------------------------------------------------------------------------------


def missing(results: Results, asked: Mapping[str, Any]) -> Iterator[Wanted]:
    """The runs that can be made now, the most valuable first: one seed of every row, then others.

    Args:
        results: Those so far.
        asked: Values of "network", "passes" and "system" that are wanted, None for all.
    """
    for seeds in (PLAN["seeds"][:1], PLAN["seeds"][1:]):
        for cell in cells():
            of_cell = {
                "network": cell.network, "passes": cell.passes, "system": cell.system["name"],
            }  # fmt: skip
            if any(asked.get(name) not in (None, value) for name, value in of_cell.items()):
                continue
            best = chosen(results, cell)
            if best is None:
                seed = PLAN["tuning_seed"]
                keys = [("tuning", cell.key(seed, each)) for each in points(results, cell)]
            else:
                keys = [("evaluated", cell.key(seed, best)) for seed in seeds]
            for part, key in keys:
                if results.found(key) is None:
                    yield Wanted(cell, key, part)


@contextlib.contextmanager
def claimed(folder: Path, key: Row) -> Iterator[bool]:
    """Claim a run for this process; whether that was possible."""
    path = folder / hashlib.sha256(_text(key).encode()).hexdigest()[:16]
    path.mkdir(parents=True, exist_ok=True)
    try:
        held = lock_of(path)
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        held.release()


def make_missing(
    wanted: Callable[[Results], Iterable[Wanted]],
    make: Callable[[Wanted], Row],
    paths: Sequence[Path],
    claims: Path,
) -> int:
    """Make what is missing, together with other processes, and keep each result as it comes.

    Args:
        wanted: From the results so far to the runs that can be made.
        make: Makes one.
        paths: Files of results; the first one takes what is made.
        claims: Folder of the claims.

    Returns:
        How many runs failed; their messages are printed.
    """
    failed: set[str] = set()

    def made(each: Wanted) -> bool:
        """Whether this process made it; another one may have it, or have had it."""
        with claimed(claims, each.key) as is_mine:
            if not is_mine or Results(paths).found(each.key) is not None:
                return False
            try:
                row = make(each)
            except UserError as error:
                print(f"{_text(each.key)}: {format_error(error)}", flush=True)
                failed.add(_text(each.key))
                return True
            paths[0].parent.mkdir(parents=True, exist_ok=True)
            with paths[0].open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)
            return True

    while left := [each for each in wanted(Results(paths)) if _text(each.key) not in failed]:
        if not any(map(made, left)):
            time.sleep(_PAUSE)
    return len(failed)


# ---- a run ---------------------------------------------------------------------------------------


def network_of(stream: nccl_tf.Stream) -> keras.Model:
    """A dense head on features [n, width], scaled by those of the first task."""
    first = stream[0].train.inputs.astype(np.float32)
    mean, spread = first.mean(axis=0), first.std(axis=0)
    spread += 0.01 * spread.max()
    scale = keras.layers.Rescaling((1 / spread).tolist(), (-mean / spread).tolist())
    inputs = keras.Input(stream.example_shape)
    return keras.Sequential([inputs, scale, keras.layers.Dense(stream.num_classes)])


def batch_size_of(system: Row) -> int:
    """The examples in a batch of a system."""
    return system.get("batch_size", PLAN["batch_size"])


def run(system: Row, parts: Mapping[str, Features], setting: Row, key: Row) -> Row:
    """One system on one stream of features.

    Args:
        system: Its row of the plan.
        parts: Features of "train" and "test".
        setting: "evaluated" or "tuning" of the plan.
        key: What the result is of: seed, passes and numbers among it.

    Returns:
        The key with the figures, None where the steps diverged.
    """
    seed, numbers = key["seed"], dict(key["numbers"])
    method = METHODS[system["method"]]
    train, test = ((z.astype(np.float32), y) for z, y in (parts["train"], parts["test"]))
    stream = nccl_tf.stream_from_arrays(
        train, test, num_tasks=setting["tasks"], head="single", seed=seed
    )
    keras.utils.set_random_seed(seed)
    rate = numbers.pop(_RATE, 0.01)
    memory = PLAN["memory"] if method.memory else None
    options = {**system.get("options", {}), **numbers}
    if isinstance(options.get("alignment"), dict):
        options["alignment"] = nccl_tf.Alignment(**options["alignment"])
    learner = nccl_tf.create(method.name, network_of(stream), stream, memory, seed=seed, **options)
    learner.compile(keras.optimizers.SGD(rate))
    begin = time.process_time()
    try:
        result = nccl_tf.learn(
            learner, stream, batch_size=batch_size_of(system), epochs=key["passes"], seed=seed,
            joint=method.joint, verbose=0,
        )  # fmt: skip
    except nccl_tf.LearningFailedError:
        return {**key, **dict.fromkeys(FIGURES), "devices": describe_devices()}
    return figures(key, result, begin)


def figures(key: Row, result: nccl_tf.LearnResult, begin: float) -> Row:
    """A row of results.

    Args:
        key: What it is of.
        result: Of `nccl_tf.learn`.
        begin: Processor seconds of this process when it began.
    """
    is_joint = np.isnan(result.forgetting) or result.matrix.shape[0] == 1
    return {
        **key,
        "accuracy": result.average_accuracy,
        "forgetting": None if is_joint else result.forgetting,
        "seconds": round(time.process_time() - begin, 1),
        "bytes_stored": result.bytes_stored,
        "examples_passed": result.examples_passed,
        "devices": describe_devices(),
    }
