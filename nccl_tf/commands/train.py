"""The command `train`: every seed that is not finished, and what came out of it."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.experiment.config.options import (
    OF_THE_COMMAND,
    check_diagnostics,
    resolve_options,
)
from nccl_tf.experiment.launch import worker
from nccl_tf.experiment.launch.pool import choose_workers, run_locally
from nccl_tf.experiment.run.console import Console, describe_speed, task_name
from nccl_tf.experiment.run.record import FILE_NAME, read_result
from nccl_tf.experiment.run.run_file import settings_to_resume
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Record, Run, learning_failed, train_seed
from nccl_tf.methods.registry import get_method
from nccl_tf.reports.terminal import run_summary, seeds_summary


def run(flag_values: Mapping[str, Any]) -> int:
    """Train every seed that is not finished, and print and draw what came out.

    Several seeds are trained side by side, in as many processes as `--workers` allows; one is
    trained in this process.

    Returns:
        0, 1 where the process of a seed broke, or 128 and the number of the signal that came.

    Raises:
        UserError: A setting is bad, data are missing, or the output folder cannot be written.
        LearningFailedError: Ten steps in a row were not finite.
        Interrupted: A signal came while seeds ran side by side.
    """
    runs = _make_runs(flag_values)
    options = runs[0].options
    console = Console(options.progress)
    workers = choose_workers(runs, options.workers)
    train = _train_side_by_side if workers > 1 else _train_in_turn
    options = dataclasses.replace(options, workers=workers)
    return train([seed_run._replace(options=options) for seed_run in runs], console)


def _make_runs(flag_values: Mapping[str, Any]) -> list[Run]:
    if flag_values["resume"] is None:
        options = resolve_options(flag_values)
        return [Run.from_flags(flag_values, options, seed) for seed in options.seeds]
    folder = Path(flag_values["resume"])
    settings, seed, together = settings_to_resume(folder, flag_values)
    own = {name: flag_values[name] for name in OF_THE_COMMAND}
    options = resolve_options({**together, **own})
    check_diagnostics(settings, options)
    return [Run(settings, options, seed, folder, together)]


def _train_in_turn(runs: Sequence[Run], console: Console) -> int:
    records = []
    for seed_run in runs:
        try:
            record, files = train_seed(seed_run, _plot, console)
        except Interrupted as interrupted:
            same = "" if seed_run.options.overwrite else "the same command, or "
            print(f"{interrupted}; {same}--resume={seed_run.folder}, goes on", file=sys.stderr)
            return interrupted.exit_code
        _tell_result(seed_run, record, files, console)
        records.append(record)
    _tell_seeds(records, console)
    return 0


def _train_side_by_side(runs: Sequence[Run], console: Console) -> int:
    settings, workers = runs[0].settings, runs[0].options.workers or 1
    earlier = {seed_run.folder for seed_run in runs if seed_run.is_finished}
    title = f"{settings.method} on {settings.dataset} ({settings.head}-head)"
    console.say(
        f"{console.styled(title, 'bold')}, learning rate {settings.learning_rate:g}\n"
        f"{len(runs)} seeds, {len(earlier)} of them finished already; {workers} at a time, in "
        "processes of their own"
    )

    def listen(seed_run: Run, event: dict[str, Any]) -> None:
        _pass_on(seed_run, event, console)

    failed = run_locally(runs, workers, console.say, listen, program="nccl_tf.commands.train")
    records = []
    for seed_run in runs:
        if seed_run.folder in failed:
            continue
        record = read_result(seed_run.folder, seed_run.settings, seed_run.seed)
        names = [] if seed_run.folder in earlier else [FILE_NAME, "steps.csv"]
        files = [
            *(seed_run.folder / name for name in names),
            *sorted(seed_run.folder.glob("*.png")),
        ]
        _tell_result(seed_run, record, files, console)
        records.append(record)
    _tell_seeds(records, console)
    for seed_run in runs:
        problem = failed.get(seed_run.folder)
        if problem == worker.LEARNING_FAILED:
            raise learning_failed(seed_run)
        if problem:
            print(f"error: seed {seed_run.seed} {problem}", file=sys.stderr)
    return 1 if failed else 0


def _pass_on(seed_run: Run, event: dict[str, Any], console: Console) -> None:
    """Tell here what the process of a seed reports."""
    kind, values = event["event"], {**event, "seed": seed_run.seed}
    del values["event"]
    if kind not in ("task", "step"):
        if kind == "resumed":
            console.say(f"seed {seed_run.seed}: going on in task {values['task']}")
        console.event(kind, **values)
        return
    joint = get_method(seed_run.settings.method).joint
    name = f"seed {seed_run.seed}, {task_name(values['task'], values['tasks'], joint)}"
    if kind == "task":
        console.task(name, values)
    else:
        console.step(name, values)
        console.draw(f"{name}: {describe_speed(values)}")


def _tell_result(
    seed_run: Run, record: Mapping[str, Any], files: Sequence[Path], console: Console
) -> None:
    console.say("\n".join(["", run_summary(record), *(f"see {path}" for path in files)]))
    console.event(
        "result", seed=seed_run.seed, average_accuracy=record["average_accuracy"],
        forgetting=record["forgetting"], record=str(seed_run.folder / FILE_NAME),
        state_sha256=record["state_sha256"],
    )  # fmt: skip


def _tell_seeds(records: Sequence[Record], console: Console) -> None:
    if len(records) > 1:
        console.say("\n" + seeds_summary(records))


def _plot(record: Record, folder: Path) -> list[Path]:
    from nccl_tf.reports.figures.run import save_figures

    return save_figures(record, folder)


if __name__ == "__main__":
    # The process of a seed: a worker that also draws the pictures of its run.
    sys.exit(worker.main(_plot))
