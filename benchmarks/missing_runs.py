"""Core hours of a run of every published setting that lacks runs, from a step of each.

python -m benchmarks.missing_runs [--output_dir=results] [--dataset=split_cifar100 ...]
python -m benchmarks.missing_runs --dataset=split_mini_imagenet --manual_dir=FOLDER --share=0.1
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from benchmarks.study_steps import STEPS
from nccl_tf.arguments.evaluated import ALL, tasks_to_evaluate
from nccl_tf.experiment.config.options import Options
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.run.build import build_learner, build_stream, training_parts
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.experiment.run.files import write_file
from nccl_tf.reports.costs import costs_text, read_costs
from nccl_tf.reports.paper.missing_runs import COMMAND, FILE_NAME, MissingRuns
from nccl_tf.reports.paper.parity import select_cells
from nccl_tf.reports.records import find_records

ABOUT = (
    "Core hours of one run of published settings that lack runs: processor time of a step and of "
    "an evaluation on one thread, times their number."
)


def hours_of_a_run(settings: Settings, options: Options) -> float:
    """Core hours of steps, ends of tasks and evaluations, from some of each in the second task."""
    stream = build_stream(settings, options, seed=0)
    parts = training_parts(settings, stream)
    tasks = len(stream)
    rows = [tasks - 1] if len(parts) == 1 else range(tasks)
    cells = tasks + sum(len(tasks_to_evaluate(settings.evaluate or ALL, i, tasks)) for i in rows)
    steps = sum(part.steps(settings.batch_size, settings.epochs) for part in parts)
    few = STEPS.get(settings.network, 5)
    learner = build_learner(settings, stream, seed=0)
    for part in parts[:-1][:1]:
        learner.fit(part.train_batches(settings.batch_size).take(few), task_id=0, verbose=0)
    task = parts[:2][-1]
    batches = task.train_batches(settings.batch_size).take(few)

    def step() -> None:
        learner.fit(batches, task_id=task.task_id, end_task=False, verbose=0)

    step()
    in_steps = _seconds(step) / few
    in_end = _seconds(learner.end_task)
    evaluation = Evaluation(learner, list(stream)[:1])
    evaluation.evaluate_initial()
    in_cell = _seconds(evaluation.evaluate_initial)
    return (steps * in_steps + len(parts) * in_end + cells * in_cell) / 3600


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _of_equal_cost(settings: Settings) -> str:
    """What runs of one cost share: all but rates, caps and the memory's size."""
    values = dataclasses.asdict(settings)
    for name in ("learning_rate", "memory_slots", "memory_capacity"):
        values.pop(name, None)
    values["hyperparameters"] = sorted(values["hyperparameters"])
    return json.dumps(values, sort_keys=True, default=str)


def main() -> None:
    """Measure what has no hours yet, print and write; a setting that has all runs leaves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output_dir", default="results")
    parser.add_argument("--dataset", action="append")
    parser.add_argument("--manual_dir")
    parser.add_argument("--share", type=float, default=1.0, help="of the images that are here")
    arguments = parser.parse_args()
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    path = Path(arguments.output_dir) / FILE_NAME
    missing = MissingRuns(find_records(Path(arguments.output_dir))[0])
    lacking = {
        (f"{cell.dataset}-{cell.head}", cell.settings().digest()[:8]): cell
        for cell in select_cells(None)
        if missing.lacked(cell)
    }
    known = {
        (stream, name): hours
        for stream, row in read_costs(path, COMMAND).items()
        for name, hours in row.items()
    }
    hours = {key: known[key] for key in lacking if key in known}
    by_cost = {_of_equal_cost(lacking[key].settings()): value for key, value in hours.items()}
    for key, cell in lacking.items():
        if key in hours or (arguments.dataset and cell.dataset not in arguments.dataset):
            continue
        cost = _of_equal_cost(cell.settings())
        if cost not in by_cost:
            measured = hours_of_a_run(cell.settings(), Options(manual_dir=arguments.manual_dir))
            by_cost[cost] = measured / arguments.share
        hours[key] = by_cost[cost]
        print(f"{cell.flag_file()}: {hours[key]:.3f} core hours", flush=True)
        by_stream = {
            stream: {n: value for (s, n), value in sorted(hours.items()) if s == stream}
            for stream in sorted({stream for stream, _ in hours})
        }
        write_file(path, costs_text(by_stream, COMMAND, ABOUT, digits=3).encode())


if __name__ == "__main__":
    main()
