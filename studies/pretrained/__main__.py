"""Six systems on the features of a network that was pretrained on other classes.

python -m studies.pretrained --run_missing [--threads=1] [--data_dir=DIR] [--base=FILE]
python -m studies.pretrained [--check]

The first makes what `results.jsonl` lacks, and appends each result as it comes; the second makes
the table of README.md of these results.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from docs.make.generated_files import print_file_status, put_between_marks
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.spread import spread
from nccl_tf.reports.table import markdown_table
from nccl_tf.streams.sources.examples import load_examples

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results.jsonl", HERE / "README.md"
BASE_CLASSES, TASKS, MEMORY, BATCH = 50, 10, 1000, 10
EPOCHS, WIDTHS = 6, (24, 48, 96)
SEEDS, TUNING_SEED = (0, 1, 2), 100

RATES = {"learning_rate": (0.003, 0.01, 0.03, 0.1)}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "finetune": RATES,
    "er_ace": RATES,
    "derpp": RATES,
    "slda": {"shrinkage": (1e-4, 1e-2, 0.1)},
    "ncm": {"ncm_distance": ("euclidean", "cosine")},
    "ranpac": {"projected_features": (500, 2000)},
}
"""The systems, each with the values that tuning chooses from."""

Examples = tuple[np.ndarray, np.ndarray]
Row = dict[str, Any]


def backbone() -> keras.Model:
    """A small ResNet from raw images to features [n, 96], with flips and crops in training."""
    layers = keras.layers
    inputs = keras.Input((32, 32, 3), dtype="uint8")
    x = nccl_tf.networks.layers.augment_images(inputs, ("flip", "crop"), seed=0)
    x = layers.Rescaling(1 / 127.5, offset=-1)(x)

    def conv(x: Any, width: int, side: int, stride: int) -> Any:
        x = layers.Conv2D(width, side, stride, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9)(x)

    x = layers.ReLU()(conv(x, WIDTHS[0], 3, 2))
    for stage, width in enumerate(WIDTHS):
        stride = 2 if stage else 1
        shortcut = conv(x, width, 1, stride) if stage else x
        y = conv(layers.ReLU()(conv(x, width, 3, stride)), width, 3, 1)
        x = layers.ReLU()(layers.Add()([y, shortcut]))
    return keras.Model(inputs, layers.GlobalAveragePooling2D()(x))


def classes_of(data: Examples, classes: np.ndarray) -> Examples:
    """The examples of some classes, which are numbered anew in their order."""
    chosen = np.isin(data[1], classes)
    return data[0][chosen], np.searchsorted(classes, data[1][chosen]).astype(np.int32)


def pretrained(path: Path, train: Examples, test: Examples) -> tuple[keras.Model, Row]:
    """The backbone with weights learned on the base classes, from its file where there is one."""
    keras.utils.set_random_seed(0)
    features = backbone()
    network = keras.Model(features.input, keras.layers.Dense(BASE_CLASSES)(features.output))
    steps = -(-len(train[1]) // 64) * EPOCHS
    rate = keras.optimizers.schedules.CosineDecay(0.1, steps)
    network.compile(
        keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=5e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"],
    )  # fmt: skip
    start = time.process_time()
    if path.exists():
        network.load_weights(path)
    else:
        network.fit(*train, batch_size=64, epochs=EPOCHS, verbose=2)
        path.parent.mkdir(parents=True, exist_ok=True)
        network.save_weights(path)
    _, accuracy = network.evaluate(*test, batch_size=500, verbose=0)
    seconds = round(time.process_time() - start)
    return features, {"system": "base", "accuracy": accuracy, "seconds": seconds}


def build(system: str, stream: nccl_tf.Stream, seed: int, numbers: Row) -> nccl_tf.Learner:
    """A compiled learner of a stream of features [n, width]."""
    keras.utils.set_random_seed(seed)
    inputs = keras.Input(stream.example_shape)
    network = keras.Sequential([inputs, keras.layers.Dense(stream.num_classes)])
    own = dict(numbers)
    rate, memory = own.pop("learning_rate", 0.1), MEMORY if METHODS[system].memory else None
    learner = nccl_tf.create(system, network, stream, memory, seed=seed, **own)
    learner.compile(keras.optimizers.SGD(rate), metrics=["accuracy"])
    return learner


def run(system: str, train: Examples, test: Examples | None, seed: int, numbers: Row) -> Row:
    """One pass over the tasks; without test examples a tenth of the training ones is held out."""
    held = {} if test is not None else {"test_fraction": 0.1}
    stream = nccl_tf.stream_from_arrays(
        train, test, num_tasks=TASKS, head="single", seed=seed, **held
    )
    learner = build(system, stream, seed, numbers)
    start = time.process_time()
    batch = METHODS[system].batch_sizes[1]
    result = nccl_tf.learn(learner, stream, batch_size=batch, seed=seed, verbose=0)
    return {
        "system": system, "seed": seed, "tuning": test is None, "numbers": numbers,
        "accuracy": result.average_accuracy, "forgetting": result.forgetting,
        "seconds": round(time.process_time() - start, 1),
    }  # fmt: skip


def results() -> list[Row]:
    """The finished results."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return [json.loads(line) for line in lines]


def keep(row: Row) -> None:
    """Append a result."""
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, flush=True)


def points(system: str) -> Iterator[Row]:
    """The points of a system's grid, which has one number."""
    ((name, values),) = GRIDS[system].items()
    for value in values:
        yield {name: value}


def chosen(system: str, rows: list[Row]) -> Row | None:
    """The numbers that tuning chose; None before all are tried."""
    tried = [row for row in rows if row["system"] == system and row["tuning"]]
    if len(tried) < len(list(points(system))):
        return None
    return max(tried, key=lambda row: row["accuracy"])["numbers"]


def run_missing(asked: argparse.Namespace) -> None:
    """Pretrain, cache the features of all images once, tune every system and run its seeds."""
    for which in ("intra", "inter"):
        getattr(tf.config.threading, f"set_{which}_op_parallelism_threads")(asked.threads)
    images = load_examples("cifar100", asked.data_dir)
    parts = [(part.inputs, part.labels) for part in (images.train, images.test)]
    order = np.random.default_rng(0).permutation(100)
    base, later = np.sort(order[:BASE_CLASSES]), np.sort(order[BASE_CLASSES:])
    of_base = [classes_of(part, base) for part in parts]
    features, row = pretrained(Path(asked.base), *of_base)
    if not any(found["system"] == "base" for found in results()):
        keep({**row, "tuning": False})

    def cached(part: Examples) -> Examples:
        return features.predict(part[0], batch_size=500, verbose=0), part[1]

    # Scaled by what the base classes say; no later class is known when the stream begins.
    known = cached(of_base[0])[0]
    mean, spread = known.mean(0), known.std(0) + 1e-3
    train, test = (
        ((values - mean) / spread, labels)
        for values, labels in (cached(classes_of(part, later)) for part in parts)
    )
    for system in GRIDS:
        for numbers in points(system):
            make_missing(system, TUNING_SEED, numbers, lambda *at: run(at[0], train, None, *at[1:]))
        numbers = chosen(system, results())
        for seed in SEEDS:
            make_missing(system, seed, numbers, lambda *at: run(at[0], train, test, *at[1:]))


def make_missing(
    system: str, seed: int, numbers: Row | None, make: Callable[[str, int, Row], Row]
) -> None:
    """Make a result, unless it is there."""
    key = (system, seed, numbers)
    if numbers is not None and key not in [
        (row["system"], row.get("seed"), row.get("numbers")) for row in results()
    ]:
        keep(make(system, seed, numbers))


def table(rows: list[Row]) -> str:
    """The systems, the most accurate first."""
    lines = []
    for system in GRIDS:
        numbers = chosen(system, rows)
        runs = [r for r in rows if r["system"] == system and r["numbers"] == numbers]
        runs = [row for row in runs if not row["tuning"]]
        if runs:
            values = {
                name: np.array([row[name] for row in runs])
                for name in ("accuracy", "forgetting", "seconds")
            }
            tuned = ", ".join(f"{name} {value}" for name, value in (numbers or {}).items())
            accuracy, forgetting = spread(100 * values["accuracy"]), spread(values["forgetting"])
            cells = [
                METHODS[system].title, tuned, str(len(runs)),
                f"{accuracy.mean:.1f} ± {accuracy.std:.1f}",
                f"{forgetting.mean:.3f} ± {forgetting.std:.3f}",
                str(MEMORY) if METHODS[system].memory else "-",
                f"{values['seconds'].mean():.0f}",
            ]  # fmt: skip
            lines.append((accuracy.mean, cells))
    if not lines:
        return (
            "There are no results yet: `python -m studies.pretrained --run_missing` makes them.\n"
        )
    lines.sort(key=lambda line: -line[0])
    names = ("system", "tuned", "seeds", "accuracy %", "forgetting", "memory", "seconds")
    shown = markdown_table(names, [cells for _, cells in lines], names[2:])
    base = 100 * next(row["accuracy"] for row in rows if row["system"] == "base")
    return f"{shown}\nThe base network has {base:.1f} % on the test images of its own classes.\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not as made")
    parser.add_argument("--run_missing", action="store_true", help="make what has no result")
    parser.add_argument("--threads", type=int, default=1, help="of an operation")
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--base", default="runs/pretrained/base.weights.h5", help="its weights")
    asked = parser.parse_args()
    if asked.run_missing:
        run_missing(asked)
        return
    same = put_between_marks(PAGE, "table", table(results()), check=asked.check)
    sys.exit(print_file_status(PAGE, same, check=asked.check))


if __name__ == "__main__":
    main()
