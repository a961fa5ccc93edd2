"""A grid of hyperparameters: its trials on tuning data, and their ranking."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.run_file import check_run_plugins, given_flags
from nccl_tf.experiment.run.train import Run
from nccl_tf.methods.registry import get_method
from nccl_tf.records.options import RUN_OPTIONS, RunOptions, as_arguments
from nccl_tf.records.record import Record, read_result
from nccl_tf.records.spread import spread

FOLDER = "sweep"
"""Folder of all trials in the output folder."""

_ALPHA_L = 0.9
# What says how a sweep is run, and is no setting of its winner.
_HOW = (*RUN_OPTIONS, "sweep", "tasks", "ray_address")


class GridPoint(NamedTuple):
    """One point of the grid.

    Attributes:
        values: Of the flags that are swept, by name.
        flags: Of all flags that set it, without those that say how it is run.
        runs: One for each seed.
    """

    values: Mapping[str, Any]
    flags: Mapping[str, Any]
    runs: tuple[Run, ...]

    @property
    def folder(self) -> Path:
        """The folder of its method and stream, of which it has one for each point."""
        return self.runs[0].folder.parents[1]


class RankedPoint(NamedTuple):
    """A point of the grid and its results.

    Attributes:
        point: The point.
        records: Of the seeds that finished.
        problem: Why others did not, "" if all did.
    """

    point: GridPoint
    records: Sequence[Record]
    problem: str

    @property
    def accuracies(self) -> np.ndarray:
        """Average accuracy, a fraction, of each seed: float [seeds]."""
        return np.array([record.average_accuracy for record in self.records], np.float64)


def grid_points(flag_values: Mapping[str, Any], options: RunOptions) -> list[GridPoint]:
    """Every point of the grid, each with all seeds.

    NCCL's L is lowered to 0.9/alpha where alpha L would reach 1.

    Args:
        flag_values: By name, with `sweep`.
        options: Seeds, and the output folder, below which `sweep` takes the trials.

    Raises:
        UserError: There is no grid, a point has a bad value, or two points are the same run.
    """
    sweeps = flag_values["sweep"] or []
    names = [sweep.name for sweep in sweeps]
    if not sweeps or len(set(names)) < len(names):
        raise UserError(
            f"received {len(names)} grids ({', '.join(names) or 'none'}): expected each flag once, "
            "such as --sweep=learning_rate:0.01,0.1, or --flagfile=flags/grids/nccl_ring.flags"
        )
    if flag_values["tasks"] is not None:
        raise UserError(
            f"--tasks={flag_values['tasks']} has no effect here: a sweep always runs on what is "
            "held out for tuning; leave it out"
        )
    result: dict[Path, GridPoint] = {}
    for values in itertools.product(*(sweep.values for sweep in sweeps)):
        swept = dict(zip(names, values, strict=True))
        point = _make_point(swept, flag_values, options)
        other = result.setdefault(point.runs[0].folder, point)
        if other is not point:
            raise UserError(
                f"--sweep: {describe_values(swept)} is the same run as "
                f"{describe_values(other.values)}; sweep over settings of the run, each value once"
            )
    return list(result.values())


def earlier_points(
    points: Sequence[GridPoint],
    records: Mapping[Path, Record],
    flag_values: Mapping[str, Any],
    options: RunOptions,
) -> list[RankedPoint]:
    """Points of earlier grids over the same flags, with all else equal, that have every seed.

    Args:
        points: Those of this grid, which are left out.
        records: Of finished trials, by their folder.
        flag_values: As for `grid_points`.
        options: As for `grid_points`.
    """
    known, found = {point.runs[0].folder.parent for point in points}, []
    for folder, record in records.items():
        if folder.parent in known:
            continue
        known.add(folder.parent)
        try:
            given = given_flags(folder)
            swept = {name: given[name] for name in points[0].values}
            point = _make_point(swept, flag_values, options)
            for run in point.runs:
                check_run_plugins(run.folder, options.plugin)
        except (OSError, ValueError, KeyError):  # No trial of such a grid, or of another plugin.
            continue
        is_same = point.runs[0].settings.digest() == record.settings_hash
        if is_same and all(run.folder in records for run in point.runs):
            found.append(RankedPoint(point, [records[run.folder] for run in point.runs], ""))
    return found


def rank(
    points: Sequence[GridPoint], failed: Mapping[Path, str], earlier: Sequence[RankedPoint] = ()
) -> list[RankedPoint]:
    """Points by their mean accuracy over the seeds, the best first; unfinished ones last.

    Args:
        points: Points of the grid whose runs were made.
        failed: Why runs failed, by their folder.
        earlier: Points that finished before, to be ranked among them.
    """
    result = []
    for point in points:
        done = [run for run in point.runs if run.folder not in failed]
        records = [read_result(run.folder, run.settings, run.seed) for run in done]
        problems = [failed[run.folder] for run in point.runs if run.folder in failed]
        result.append(RankedPoint(point, records, problems[0] if problems else ""))
    return sorted([*result, *earlier], key=_order)


def _order(ranked: RankedPoint) -> tuple[bool, float, float]:
    if ranked.problem:
        return (True, 0.0, 0.0)
    accuracy = spread(ranked.accuracies)
    return (False, -accuracy.mean, accuracy.std)


def winner_name(flag_values: Mapping[str, Any], options: RunOptions) -> str:
    """Name of the winner's flagfile: one for each choice of swept flags, other flags and seeds."""
    names = sorted(sweep.name for sweep in flag_values["sweep"])
    others = {n: v for n, v in flag_values.items() if n not in (*_HOW, *names)}
    words = [*names, *sorted(as_arguments({**others, "seeds": options.seeds}))]
    return f"winner-{hashlib.sha256(json.dumps(words).encode()).hexdigest()[:8]}.flags"


def winner_file(best: RankedPoint, others: int) -> str:
    """The winner as a flagfile, its scores as comments.

    `max_tasks` is left out: it shortens the trials, and would shorten the training with the file.
    """
    settings = best.point.runs[0].settings
    count = settings.tuning_tasks or settings.num_tasks
    first = f"first {settings.max_tasks} of the " if settings.max_tasks < count else ""
    images, kind = (
        ("", "tuning tasks") if settings.tuning_tasks else ("held-out images of ", "tasks")
    )
    accuracy = spread(100 * best.accuracies)
    over = f"+- {accuracy.std:.2f} % over {accuracy.size} seeds"
    lines = [
        f"# The best of {others + 1} points over {', '.join(best.point.values)}, on "
        f"{images}the {first}{count} {kind} of {settings.dataset}:",
        f"# accuracy {accuracy.mean:.2f} {over if accuracy.size > 1 else '% with one seed'}.",
        *(f"# Give --plugin={name} with it." for name in best.point.runs[0].options.plugin),
        *as_arguments({**best.point.flags, "max_tasks": None}),
    ]
    return "\n".join(lines) + "\n"


def describe_values(values: Mapping[str, Any]) -> str:
    """A point of the grid, such as "learning_rate 0.1, beta_max 0.5"."""
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _with_possible_smoothness(flags: dict[str, Any]) -> dict[str, Any]:
    """With L_eff = min(L, 0.9/alpha), where the method asks for alpha L < 1 with a fixed L."""
    rates = [flags[name] for name in ("learning_rate", "first_task_learning_rate") if flags[name]]
    lowest = resolve({**flags, **dict.fromkeys(("learning_rate", "first_task_learning_rate"))})
    smoothness = get_method(lowest.method).bounding_smoothness(lowest.hyperparameters)
    if not rates or max(rates) * smoothness < 1:
        return flags
    return {**flags, "smoothness": _ALPHA_L / max(rates)}


def _make_point(
    swept: Mapping[str, Any], flag_values: Mapping[str, Any], options: RunOptions
) -> GridPoint:
    settings = {name: value for name, value in flag_values.items() if name not in _HOW}
    how = {**{name: flag_values[name] for name in RUN_OPTIONS}, "seeds": None}
    how |= {"tasks": "tuning", "output_dir": str(Path(options.output_dir) / FOLDER)}
    flags = _with_possible_smoothness({**settings, **swept})
    return GridPoint(swept, flags, _make_runs({**flags, **how}, options))


def _make_runs(flag_values: Mapping[str, Any], options: RunOptions) -> tuple[Run, ...]:
    below = dataclasses.replace(options, output_dir=flag_values["output_dir"])
    return tuple(Run.from_flags(flag_values, below, seed) for seed in options.seeds)
