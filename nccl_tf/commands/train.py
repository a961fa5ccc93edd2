"""The command `train`: every seed of every method that is not finished, and its results."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.arguments.parameters import OUTPUT, Setting
from nccl_tf.commands._command import Command
from nccl_tf.commands._output import print_event, warn_left_out
from nccl_tf.experiment.config.resolve import leave_out, resolve
from nccl_tf.experiment.launch.pool import choose_workers, run_locally
from nccl_tf.experiment.launch.worker import LEARNING_FAILED
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.run_file import FILE_NAME as RUN_FILE
from nccl_tf.experiment.run.run_file import settings_to_resume
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Run, how_to_resume, learning_failed, train_seed
from nccl_tf.records.options import (
    OF_THE_COMMAND,
    check_options,
    resolve_options,
)
from nccl_tf.records.record import FILE_NAME, Record, read_result
from nccl_tf.records.settings import flattened
from nccl_tf.reports.terminal import run_summary, seeds_summary


def run(flag_values: Mapping[str, Any]) -> int:
    """Train every run that is not finished, and print and draw its results.

    There is a run for each seed of each method. Several are trained side by side, in as many
    processes as `--workers` allows; one is trained in this process.

    Returns:
        0, 1 where the process of a seed broke, or 128 and the number of the signal that came.

    Raises:
        UserError: A setting is bad, data are missing, or the output folder cannot be written.
        LearningFailedError: Ten steps in a row were not finite.
        Interrupted: A signal came while seeds ran side by side.
    """
    runs = _make_runs(flag_values)
    if flag_values["dry_run"]:
        print("\n\n".join(map(_describe, runs)))
        return 0
    options = runs[0].options
    console = Console(options.progress)
    # One run is made in this process.
    alone = len(runs) == 1 and options.workers is None
    workers = 1 if alone else choose_workers(runs, options.workers)
    train = _train_side_by_side if workers > 1 else _train_in_turn
    options = dataclasses.replace(options, workers=workers)
    return train([seed_run._replace(options=options) for seed_run in runs], console)


def _make_runs(flag_values: Mapping[str, Any]) -> list[Run]:
    if flag_values["resume"] is None:
        options = resolve_options(flag_values)
        return [
            Run.from_flags(of_method, options, seed)
            for of_method in _of_each_method(flag_values)
            for seed in options.seeds
        ]
    folder = Path(flag_values["resume"])
    settings, seed, together = settings_to_resume(folder, flag_values)
    own = {name: flag_values[name] for name in OF_THE_COMMAND}
    options = resolve_options({**together, **own})
    check_options(settings, options)
    return [Run(settings, options, seed, folder, together)]


def _describe(seed_run: Run) -> str:
    """A run that is not made: where it would be, and every setting that it has."""
    settings, folder = seed_run.settings, seed_run.folder
    there = folder / RUN_FILE
    state = "finished" if seed_run.is_finished else "begun" if there.is_file() else "not begun"
    values = {
        "folder": f"{folder} ({state})",
        "settings hash": settings.digest(),
        **{name: v for name, v in flattened(settings.as_json()).items() if v is not None},
    }
    title = f"{settings.method} on {settings.dataset} ({settings.head}-head), seed {seed_run.seed}"
    rows = (f"  {name:26} {_shown(value)}" for name, value in values.items())
    return "\n".join([title, *rows])


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _of_each_method(flag_values: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The flag values of each method of a list, each without the flags that it does not have.

    Raises:
        UserError: None of the methods has a flag that is given.
    """
    names = list(dict.fromkeys((flag_values["method"] or "").split(",")))
    if len(names) < 2:
        return [flag_values]
    given = {name for name, value in flag_values.items() if value is not None}
    used = [leave_out({**flag_values, "method": name}, given) for name in names]
    if any(all(values[flag] is None for values in used) for flag in given):
        resolve({**flag_values, "method": names[0]})  # which says why
    for name, values in zip(names, used, strict=True):
        warn_left_out(flag_values, values, f"for {name}")
    return used


def _train_in_turn(runs: Sequence[Run], console: Console) -> int:
    records = []
    for seed_run in runs:
        try:
            record, files = train_seed(seed_run, _plot, console)
        except Interrupted as interrupted:
            print(f"{interrupted}; {how_to_resume(seed_run)}, resumes it", file=sys.stderr)
            return interrupted.exit_code
        _print_result(seed_run, record, files, console)
        records.append(record)
    _print_summary(records, console)
    return 0


def _train_side_by_side(runs: Sequence[Run], console: Console) -> int:
    workers = runs[0].options.workers or 1
    earlier = {seed_run.folder for seed_run in runs if seed_run.is_finished}
    for settings in {seed_run.settings.digest(): seed_run.settings for seed_run in runs}.values():
        title = f"{settings.method} on {settings.dataset} ({settings.head}-head)"
        console.say(f"{console.styled(title, 'bold')}, learning rate {settings.learning_rate:g}")
    console.say(
        f"{len(runs)} runs, {len(earlier)} of them finished already; {workers} at a time, in "
        "processes of their own"
    )

    def listen(seed_run: Run, event: dict[str, Any]) -> None:
        print_event(seed_run, _name(seed_run), event, console)

    failed = run_locally(runs, workers, console.say, listen, make=train_and_plot)
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
        _print_result(seed_run, record, files, console)
        records.append(record)
    _print_summary(records, console)
    for seed_run in runs:
        problem = failed.get(seed_run.folder)
        if problem == LEARNING_FAILED:
            raise learning_failed(seed_run)
        if problem:
            print(f"error: {_name(seed_run)} {problem}", file=sys.stderr)
    return 1 if failed else 0


def _print_result(seed_run: Run, record: Record, files: Sequence[Path], console: Console) -> None:
    """Print the result of a run, and the files that it made."""
    console.say("\n".join(["", run_summary(record), *(f"see {path}" for path in files)]))
    console.event(
        "result", seed=seed_run.seed, average_accuracy=record.average_accuracy,
        forgetting=record.forgetting, record=str(seed_run.folder / FILE_NAME),
        state_sha256=record.state_sha256,
    )  # fmt: skip


def _name(seed_run: Run) -> str:
    return f"{seed_run.settings.method}, seed {seed_run.seed}"


def _print_summary(records: Sequence[Record], console: Console) -> None:
    """Print the results of several seeds and methods."""
    of_methods: dict[str, list[Record]] = {}
    for record in records:
        of_methods.setdefault(record.settings_hash, []).append(record)
    for seeds in of_methods.values():
        if len(seeds) > 1:
            console.say("\n" + seeds_summary(seeds))
    if len(of_methods) > 1:
        # Imported late: a finished run is told without numpy.
        from nccl_tf.reports.tables import results_text

        console.say("\n" + results_text(records))


def train_and_plot(seed_run: Run, console: Console) -> None:
    """Make a run with its pictures, in a process of its own."""
    train_seed(seed_run, _plot, console)


def _plot(record: Record, folder: Path) -> list[Path]:
    from nccl_tf.reports.figures.run import save_figures

    return save_figures(record, folder)


COMMAND = Command(
    "train", "[--flag=value ...]", "train, task by task", run,
    first=("method", "dataset", "seeds", "learning_rate", "memory_per_class", "max_tasks",
           "batch_size", "epochs", "output_dir", "workers"),
    flags_of_runs=None,
    flags=(
        Setting(
            "resume", "text", topic=OUTPUT, default_doc="the unfinished run of the same settings",
            help="folder of the run to resume; other settings than that run's raise an error",
        ),
        Setting(
            "dry_run", "bool", False, topic=OUTPUT,
            help="train nothing: print each run's folder, the hash of its settings, and these",
        ),
    ),
    advice={"resume": "rerun the same command: it resumes what is not finished"},
)  # fmt: skip
