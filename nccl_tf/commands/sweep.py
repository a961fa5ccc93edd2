"""The command `sweep`: a grid of hyperparameters on tuning data."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_tf.arguments.parameters import RUN, Setting
from nccl_tf.commands._command import RAY_ADDRESS, Command
from nccl_tf.commands._output import print_event, program_name, warn_skipped_records
from nccl_tf.errors import LearningFailedError
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.train import Run
from nccl_tf.records.files import one_at_a_time, write_file
from nccl_tf.records.options import resolve_options

if TYPE_CHECKING:
    from nccl_tf.experiment.launch.sweep import RankedPoint
    from nccl_tf.reports.table import Table

_SEEDS = (0, 1, 2)


def run(flag_values: Mapping[str, Any]) -> int:
    """Run every trial that is not finished, print the ranking and write the winner's flagfile.

    Points that earlier grids over the same flags tried, with all else equal, are ranked too.

    Raises:
        UserError: The grid is bad, data are missing, or a file cannot be written.
        LearningFailedError: No point of the grid learned with every seed.
        Interrupted: A signal came; trials that were under way have written a checkpoint.
    """
    from nccl_tf.experiment.launch.pool import finish
    from nccl_tf.experiment.launch.sweep import (
        FOLDER,
        earlier_points,
        grid_points,
        rank,
        winner_file,
        winner_name,
    )
    from nccl_tf.reports.records import Records
    from nccl_tf.reports.table import as_markdown
    from nccl_tf.reports.terminal import task_counts

    seeds = _SEEDS if flag_values["seeds"] is None else flag_values["seeds"]
    options = resolve_options({**flag_values, "seeds": seeds})
    points = grid_points(flag_values, options)
    trials = [trial for point in points for trial in point.runs]
    finished = sum(trial.is_finished for trial in trials)
    of_seeds = f"{len(options.seeds)} seed{'' if len(options.seeds) == 1 else 's'}"
    print(
        f"{len(points)} points x {of_seeds}: {len(trials)} trials, {finished} of "
        "them finished already",
        flush=True,
    )
    names = {
        trial.folder: f"{_point_name(point.values)}, seed {trial.seed}"
        for point in points
        for trial in point.runs
    }
    console = Console(options.progress)

    def listen(trial: Run, event: dict[str, Any]) -> None:
        print_event(trial, names[trial.folder], event, console)

    failed = finish(trials, flag_values, console.say, listen)
    # Another sweep may end now that tries other values of the same flags.
    with one_at_a_time(Path(options.output_dir) / FOLDER, "choose another --output_dir"):
        found = Records.below(points[0].folder)
        warn_skipped_records(found.broken, len(found.runs))
        records = {run.folder: run.record for run in found.runs if run.folder is not None}
        earlier = earlier_points(points, records, flag_values, options)
        ranking = rank(points, failed, earlier)
        print(f"\n{as_markdown(ranking_table(ranking))}")
        best = ranking[0]
        if best.problem:
            raise LearningFailedError(f"no point finished with every seed: {best.problem}")
        if earlier:
            print(
                f"{len(earlier)} of the {len(ranking)} points were tried before, in grids over the "
                "same flags with all else equal\n"
            )
        print(task_counts(best.records[0]))
        path = best.point.folder / winner_name(flag_values, options)
        write_file(path, winner_file(best, len(ranking) - 1).encode())
    print(f"see {path}\nto train the winner: {program_name(sys.argv[0])} --flagfile={path}")
    return 0


def _point_name(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def ranking_table(ranking: Sequence["RankedPoint"]) -> "Table":
    """The ranking of a sweep, the best point first."""
    from nccl_tf.reports.table import Table, mean_std

    swept = tuple(ranking[0].point.values)
    numbers = ("rank", *swept, "seeds", "accuracy %", "forgetting")
    rows = tuple(
        (
            "-" if ranked.problem else str(place),
            *(str(value) for value in ranked.point.values.values()),
            str(len(ranked.records)),
            mean_std(ranked.records, "average_accuracy", 100, 2) if ranked.records else "-",
            mean_std(ranked.records, "forgetting", 1, 3) if ranked.records else "-",
            ranked.problem or "finished",
        )
        for place, ranked in enumerate(ranking, start=1)
    )
    return Table("ranking", "Ranking", (*numbers, "trials"), rows, numbers)


COMMAND = Command(
    "sweep", "--flagfile=FILE", "a grid, on the tuning tasks", run,
    first=("sweep", "method", "dataset", "seeds", "memory_per_class", "max_tasks", "output_dir",
           "workers", "ray_address", "overwrite"),
    flags_of_runs=None,
    flags=(
        Setting(
            "sweep", "sweep", topic=RUN, default_doc="none",
            help=(
                "values of another flag to try, such as learning_rate:0.01,0.1; once for each "
                "flag; flagfiles of flags/grids hold the published grids"
            ),
        ),
        RAY_ADDRESS,
    ),
    defaults={"seeds": ",".join(map(str, _SEEDS))},
    advice={
        "sweep": (
            "flag files of flags/grids are read by that command; for one run give the flag itself "
            "a single value"
        ),
    },
)  # fmt: skip
