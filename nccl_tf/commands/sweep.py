"""The command `sweep`: a grid of hyperparameters on what is held out for tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_tf.errors import LearningFailedError
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.launch.pool import finish
from nccl_tf.experiment.launch.sweep import (
    WINNER,
    RankedPoint,
    grid_points,
    rank,
    winner_file,
)
from nccl_tf.experiment.run.files import write_file
from nccl_tf.reports.table import Table, as_markdown, mean_std
from nccl_tf.reports.terminal import task_counts

_SEEDS = (0, 1, 2)


def run(flag_values: Mapping[str, Any]) -> int:
    """Run every trial that is not finished, print the ranking and write the winner's flagfile.

    Raises:
        UserError: The grid is bad, data are missing, or a file cannot be written.
        LearningFailedError: No point of the grid learned with every seed.
        Interrupted: A signal came; trials that were under way have written a checkpoint.
    """
    seeds = _SEEDS if flag_values["seeds"] is None else flag_values["seeds"]
    options = resolve_options({**flag_values, "seeds": seeds})
    points = grid_points(flag_values, options)
    trials = [trial for point in points for trial in point.runs]
    finished = sum(trial.is_finished for trial in trials)
    print(
        f"{len(points)} points x {len(options.seeds)} seeds: {len(trials)} trials, {finished} of "
        "them finished already",
        flush=True,
    )
    failed = finish(trials, flag_values, lambda line: print(line, flush=True))
    ranking = rank(points, failed)
    print(f"\n{as_markdown(ranking_table(ranking))}")
    best = ranking[0]
    if best.problem:
        raise LearningFailedError(f"no point of the grid finished with every seed: {best.problem}")
    print(task_counts(best.records[0]))
    path = best.point.folder / WINNER
    write_file(path, winner_file(best, len(ranking) - 1).encode())
    print(f"see {path}")
    return 0


def ranking_table(ranking: Sequence[RankedPoint]) -> Table:
    """The ranking of a sweep, the best point first."""
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
