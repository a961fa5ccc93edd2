"""A step of every system of a study against one of experience replay, in each of its settings.

python -m benchmarks.study_steps --plan=flags/comparison/plan.toml [--setting=permuted_mnist_1000]
python -m benchmarks.study_steps --plan=flags/study/plan.toml --plugin=flags/study/candidates.py
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks.last_task import BATCH
from benchmarks.side_by_side import measure
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.options import Options
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.experiment.run.files import write_file
from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.reports.costs import FILE_NAME, REFERENCE, costs_text, read_costs

STEPS = {"mlp": 500, "resnet18_reduced": 10}
"""Steps of one call by the network; a multiple of `lpr_every`, so that each has what comes due."""


def system_step(values: Mapping[str, Any]) -> Callable[[], None]:
    """Steps of a system with the flags that tuning has chosen for it."""
    return second_task(resolve({**values, "average_weights": None, "max_tasks": 2}))


def second_task(settings: Settings) -> Callable[[], None]:
    """A call that fits the second task of a stream of two, once the first has ended."""
    steps = STEPS[settings.network]
    stream = build_stream(settings, Options(), seed=0)
    learner = build_learner(settings, stream, seed=0)
    learner.fit(stream[0].train_batches(BATCH).take(steps), task_id=0, verbose=0)
    batches = stream[1].train_batches(BATCH).take(steps)
    return lambda: learner.fit(batches, task_id=1, end_task=False, verbose=0)


def main() -> None:
    """Measure, print and write the ratios beside the plan; those of other settings stay."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="flags/comparison/plan.toml")
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--setting", action="append")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    load_plugins(arguments.plugin)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    plan = read_plan(Path(arguments.plan))
    if REFERENCE not in [system.name for system in plan.systems]:
        raise UserError(f"{arguments.plan} has no system {REFERENCE}, whose step counts as 1")
    costs = dict(read_costs(plan.folder / FILE_NAME))
    for setting in plan.settings:
        if arguments.setting is not None and setting.name not in arguments.setting:
            continue
        cells = [c for c in plan.cells([setting.name]) if not c.refusal()]
        # One that is not tuned yet may come to have options that cost something.
        chosen = {cell.system.name: flags for cell in cells if (flags := cell.chosen())}
        if REFERENCE not in chosen:
            print(f"{setting.name}: {REFERENCE} is not tuned yet")
            continue
        sides = {name: system_step(values) for name, (values, _) in chosen.items()}
        seconds = measure(sides, arguments.rounds, time.process_time)
        costs[setting.name] = {name: s / seconds[REFERENCE] for name, s in seconds.items()}
        print(setting.name, {name: f"{ratio:.2f}" for name, ratio in costs[setting.name].items()})
    write_file(plan.folder / FILE_NAME, costs_text(costs).encode())


if __name__ == "__main__":
    main()
