"""Methods on the features of two real networks, as plan.toml says.

python -m studies.pretrained --features [--wheels=DIR] [--cache=DIR] [--data_dir=DIR]
python -m studies.pretrained --run_missing [--network=NAME] [--system=NAME] [--passes=N]
python -m studies.pretrained [--check]

The first computes features once, of images by the networks in two wheels; the second makes what
`results.jsonl` lacks, and appends each result as it comes, so that it may be stopped at any time;
the third makes the table of README.md of these results.
"""

import argparse
import itertools
import json
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from docs.make.generated_files import print_file_status, put_between_marks
from nccl_tf.errors import UserError, format_error
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.table import markdown_table
from studies.pretrained import features
from studies.pretrained.features import Cut, Features, file_of

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results.jsonl", HERE / "README.md"
PLAN: Mapping[str, Any] = tomllib.loads((HERE / "plan.toml").read_text())
NETWORKS = {"efficientnet": "EfficientNet-Lite0", "dinov2": "DINOv2-small"}
FIGURES = ("accuracy", "forgetting", "seconds", "bytes_stored", "examples_passed")

Row = dict[str, Any]


def cuts() -> list[Cut]:
    """The images of the plan."""
    return [
        Cut(**{name: part[name] for name in ("dataset", "train", "test")})
        for part in (PLAN["evaluated"], PLAN["tuning"])
    ]


def network_of(stream: nccl_tf.Stream) -> keras.Model:
    """A dense head on features [n, width], scaled by those of the first task."""
    first = stream[0].train.inputs.astype(np.float32)
    mean, spread = first.mean(axis=0), first.std(axis=0)
    spread += 0.01 * spread.max()
    scale = keras.layers.Rescaling((1 / spread).tolist(), (-mean / spread).tolist())
    inputs = keras.Input(stream.example_shape)
    return keras.Sequential([inputs, scale, keras.layers.Dense(stream.num_classes)])


def run(system: Row, parts: Mapping[str, Features], setting: Row, key: Row) -> Row:
    """One system on one stream.

    Args:
        system: Its row of the plan.
        parts: Features of "train" and "test".
        setting: "evaluated" or "tuning" of the plan.
        key: What the result is of: seed, passes and numbers among it.

    Returns:
        The key with the figures.
    """
    seed, numbers = key["seed"], dict(key["numbers"])
    method = METHODS[system["method"]]
    train, test = ((z.astype(np.float32), y) for z, y in (parts["train"], parts["test"]))
    stream = nccl_tf.stream_from_arrays(
        train, test, num_tasks=setting["tasks"], head="single", seed=seed
    )
    keras.utils.set_random_seed(seed)
    rate = numbers.pop("learning_rate", 0.01)
    memory = PLAN["memory"] if method.memory else None
    options = {**system.get("options", {}), **numbers}
    learner = nccl_tf.create(method.name, network_of(stream), stream, memory, seed=seed, **options)
    learner.compile(keras.optimizers.SGD(rate))
    begin = time.process_time()
    result = nccl_tf.learn(
        learner, stream, batch_size=PLAN["batch_size"], epochs=key["passes"], seed=seed,
        joint=method.joint, verbose=0,
    )  # fmt: skip
    figures = {
        "accuracy": result.average_accuracy,
        "forgetting": None if method.joint else result.forgetting,
        "seconds": round(time.process_time() - begin, 1),
        "bytes_stored": result.bytes_stored,
        "examples_passed": result.examples_passed,
    }
    return {**key, **figures}


def results() -> list[Row]:
    """The finished results."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def points(system: Row) -> Iterator[Row]:
    """The points of a system's grid."""
    grid = system["grid"]
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def cells() -> Iterator[tuple[int, str, Row]]:
    """Passes, network and system of every row of the tables, in the order of the runs."""
    for passes, network, system in itertools.product(PLAN["passes"], NETWORKS, PLAN["systems"]):
        of_system = system.get("networks", list(NETWORKS))
        if passes in system.get("passes", PLAN["passes"]) and network in of_system:
            yield passes, network, system


def key_of(network: str, system: Row, passes: int, seed: int, numbers: Row) -> Row:
    """What tells a result from the others."""
    return {
        "network": network, "system": system["name"], "passes": passes, "seed": seed,
        "numbers": numbers,
    }  # fmt: skip


def found(rows: list[Row], key: Row) -> Row | None:
    """The result of a key; None where it is missing."""
    return next((row for row in rows if all(row[name] == key[name] for name in key)), None)


def chosen(rows: list[Row], network: str, system: Row, passes: int) -> Row | None:
    """The numbers that tuning chose, the first of equally good ones; None before all are tried.

    A grid of one point has nothing to choose.
    """
    grid = list(points(system))
    if len(grid) == 1:
        return grid[0]
    seed = PLAN["tuning_seed"]
    tried = [found(rows, key_of(network, system, passes, seed, numbers)) for numbers in grid]
    if None in tried:
        return None
    return max(tried, key=lambda row: row["accuracy"])["numbers"]


def run_missing(asked: argparse.Namespace) -> None:
    """Tune what is not tuned, and make the runs that have no result.

    Raises:
        UserError: Features have not been made.
    """
    for passes, network, system in cells():
        wanted = {"network": network, "passes": passes, "system": system["name"]}
        if any(getattr(asked, name) not in (None, value) for name, value in wanted.items()):
            continue
        if system["method"] not in METHODS:
            print(f"{system['name']}: there is no such method yet", flush=True)
            continue

        def make(name: str, seed: int, numbers: Row, of: tuple = (passes, network, system)) -> None:
            passes, network, system = of
            key = key_of(network, system, passes, seed, numbers)
            if found(results(), key) is None:
                setting = PLAN[name]
                parts = features.load(file_of(Path(asked.cache), network, setting["dataset"]))
                row = run(system, parts, setting, key)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)

        grid = list(points(system))
        if len(grid) > 1:
            for numbers in grid:
                make("tuning", PLAN["tuning_seed"], numbers)
        best = chosen(results(), network, system, passes)
        for seed in PLAN["seeds"]:
            make("evaluated", seed, best)


def table(rows: list[Row], network: str, passes: int) -> str:
    """The systems on a network, the most accurate first; "" without results."""
    lines = []
    for number, name, system in cells():
        if (number, name) != (passes, network):
            continue
        best = chosen(rows, network, system, passes)
        if best is None:
            continue
        keys = [key_of(network, system, passes, seed, best) for seed in PLAN["seeds"]]
        of_seeds = [row for row in (found(rows, key) for key in keys) if row]
        if of_seeds:
            lines.append((np.mean([row["accuracy"] for row in of_seeds]), system, best, of_seeds))
    if not lines:
        return ""
    shown = [
        [
            system["title"], ", ".join(f"{k} {v}" for k, v in best.items()), str(len(of_seeds)),
            *(_shown(name, [row[name] for row in of_seeds]) for name in FIGURES),
        ]
        for _, system, best, of_seeds in sorted(lines, key=lambda line: -line[0])
    ]  # fmt: skip
    names = (
        "system", "tuned", "seeds", "accuracy %", "forgetting", "seconds", "kept, MB",
        "examples passed",
    )  # fmt: skip
    title = f"{NETWORKS[network]}, {passes} pass{'es' if passes > 1 else ''}"
    return f"### {title}\n\n{markdown_table(names, shown, names[2:])}"


def _shown(name: str, values: list[float | None]) -> str:
    """The values of the seeds in a cell."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    mean, spread = np.mean(numbers), np.std(numbers)
    return {
        "accuracy": f"{100 * mean:.1f} ± {100 * spread:.1f}",
        "forgetting": f"{mean:.3f} ± {spread:.3f}",
        "seconds": f"{mean:.0f}",
        "bytes_stored": f"{mean / 1e6:.2f}",
        "examples_passed": f"{mean:,.0f}",
    }[name]


def tables(rows: list[Row]) -> str:
    """All tables."""
    made = [table(rows, name, passes) for passes in PLAN["passes"] for name in NETWORKS]
    text = "\n".join(filter(None, made))
    return text or "There are no results yet: `--run_missing` makes them.\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not as made")
    parser.add_argument("--features", action="store_true", help="compute what the cache lacks")
    parser.add_argument("--run_missing", action="store_true", help="make what has no result")
    parser.add_argument("--network", choices=NETWORKS, help="of --run_missing: this one alone")
    parser.add_argument("--passes", type=int, help="of --run_missing: so many alone")
    parser.add_argument("--system", help="of --run_missing: this one of the plan alone")
    parser.add_argument("--wheels", default="runs/pretrained", help="folder of the wheels")
    parser.add_argument("--cache", default="runs/pretrained", help="folder of the features")
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--threads", type=int, default=1, help="of an operation")
    asked = parser.parse_args()
    if not (asked.features or asked.run_missing):
        same = put_between_marks(PAGE, "table", tables(results()), check=asked.check)
        sys.exit(print_file_status(PAGE, same, check=asked.check))
    for which in ("intra", "inter"):
        getattr(tf.config.threading, f"set_{which}_op_parallelism_threads")(asked.threads)
    try:
        if asked.features:
            features.make_all(Path(asked.cache), Path(asked.wheels), cuts(), asked.data_dir)
        if asked.run_missing:
            run_missing(asked)
    except UserError as error:
        print(format_error(error), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
