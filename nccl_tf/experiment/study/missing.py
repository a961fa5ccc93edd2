"""The runs that a study lacks: tuning first, then the seeds that are reported."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nccl_tf.experiment.config.options import OPTIONS, Options
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.launch.pool import finish
from nccl_tf.experiment.launch.sweep import RankedPoint, grid_points, rank, winner_file
from nccl_tf.experiment.run.files import write_file
from nccl_tf.experiment.run.train import Run
from nccl_tf.experiment.study.plan import Cell

Say = Callable[[str], None]
Show = Callable[[Sequence[RankedPoint]], str]


def run_missing(
    cells: Sequence[Cell],
    finished: set[tuple[str, int]],
    flag_values: Mapping[str, Any],
    options: Options,
    say: Say,
    show: Show,
) -> None:
    """Tune each system that is not tuned, and make the runs that are not finished.

    Args:
        cells: In the order in which they run.
        finished: Hash of the settings and seed of runs that have a record elsewhere.
        flag_values: How runs are made.
        options: The same, and where.
        say: Takes a line of progress.
        show: Makes the text of a ranking.

    Raises:
        UserError: A run was refused, or a flag file is not of the plan.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    how = {name: flag_values.get(name) for name in OPTIONS} | {"seeds": None}
    for cell in cells:
        name = f"{cell.system.name} in {cell.setting.name}"
        if cell.refusal():
            say(f"{name}: left out, {cell.refusal()}")
            continue
        chosen = cell.chosen() or _tune(cell, how, flag_values, options, say, show)
        if chosen is None:
            continue
        values, settings = chosen
        runs = [
            Run.from_flags({**values, **how}, options, seed)
            for seed in cell.seeds
            if (settings.digest(), seed) not in finished
        ]
        say(f"{name}: {sum(not run.is_finished for run in runs)} of {len(cell.seeds)} runs missing")
        finish(runs, flag_values, say)


def _tune(
    cell: Cell,
    how: Mapping[str, Any],
    flag_values: Mapping[str, Any],
    options: Options,
    say: Say,
    show: Show,
) -> tuple[dict[str, Any], Settings] | None:
    """Write the flag file of the best point and return what it says; None where none learned."""
    seeded = dataclasses.replace(options, seeds=cell.tuning_seeds)
    points = grid_points({**cell.trial_flags(), **how}, seeded)
    trials = [trial for point in points for trial in point.runs]
    say(f"{cell.system.name} in {cell.setting.name}: {len(trials)} trials")
    failed = finish(trials, flag_values, say)
    ranking = rank(points, failed)
    say(show(ranking))
    best = ranking[0]
    if best.problem:
        say(f"no point of the grid finished: {best.problem}")
        return None
    smoothness = best.point.flags["smoothness"]  # Which the grid lowers where alpha L reaches 1.
    lowered = {} if smoothness is None else {"smoothness": smoothness}
    flags = cell.flag_values({**best.point.values, **lowered})
    evaluated = best._replace(point=best.point._replace(flags=flags))
    write_file(cell.flag_file, winner_file(evaluated, len(ranking) - 1).encode())
    return cell.chosen()
