"""A step of every method of table T4, and of MER, against one of experience replay with a ring.

python -m benchmarks.method_steps [--dataset=permuted_mnist] [--busy]
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from benchmarks.side_by_side import BATCH, measure, report, take_threads
from nccl_tf.commands.paper.parity import (
    REFERENCE,
    compare,
    select_cells,
)
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.records.options import RunOptions

TARGETS = {"er_reservoir": 1.1, "ewc": 1.5}
STEPS = {"permuted_mnist": 1000, "split_cifar100": 4}
"""Steps of one call, on the dense network and on the full ResNet-18."""


def second_task(flags: dict[str, Any]) -> Callable[[], None]:
    """A call that fits the second task of a stream, once the first has ended."""
    steps = STEPS[flags["dataset"]]
    settings = resolve({**flags, "max_tasks": 2, "examples_per_task": BATCH * steps})
    stream = build_stream(settings, RunOptions(), seed=0)
    learner = build_learner(settings, stream, seed=0)
    learner.fit(stream[0].train_batches(BATCH), task_id=0, verbose=0)
    batches = stream[1].train_batches(BATCH)
    return lambda: learner.fit(batches, task_id=1, end_task=False, verbose=0)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dataset", choices=STEPS, default="permuted_mnist")
    parser.add_argument(
        "--busy", action="store_true", help="the least processor time, for beside other work"
    )
    asked = parser.parse_args()
    dataset = asked.dataset
    take_threads(1 if dataset == "permuted_mnist" else 2)
    cells = select_cells("T4", dataset)
    flags = {cell.method: cell.flags() for cell in cells}
    if dataset == "permuted_mnist":
        flags["mer"] = {**flags["er_reservoir"], "method": "mer"}
    sides = {method: second_task(values) for method, values in flags.items()}
    how = (time.process_time, min) if asked.busy else ()
    seconds = measure(sides, asked.rounds, *how)
    published = {row.cell.method: f"{row.published:.2f}" for row in compare(cells, [])}
    ratios: dict[str, tuple[float, float | None]] = {
        f"{method} / {REFERENCE}, in the paper {published.get(method, '-')}": (
            value / seconds[REFERENCE],
            TARGETS.get(method) if dataset == "permuted_mnist" else None,
        )
        for method, value in seconds.items()
    }
    ratios["nccl_reservoir / nccl_ring"] = (
        seconds["nccl_reservoir"] / seconds["nccl_ring"],
        1.05,
    )
    times = {name: 1e3 * value / STEPS[dataset] for name, value in seconds.items()}
    report(f"A step of the methods of T4 on {dataset}", times, ratios)


if __name__ == "__main__":
    main()
