"""Systems compared under one protocol: a plan, the runs that it lacks, and the results of the runs.

A folder holds `plan.toml`, which is committed before the first run, and `chosen.toml`, to which
tuning appends the point that it has chosen for each system in each setting.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.commands._command_line import Sweep, parse_flag_words
from nccl_tf.errors import UserError, format_error
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.launch.missing import flags_of_how, missing_runs
from nccl_tf.experiment.launch.pool import finish
from nccl_tf.experiment.launch.sweep import RankedPoint, grid_points, rank
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.methods.registry import get_method
from nccl_tf.records.options import resolve_options
from nccl_tf.records.record import Record
from nccl_tf.records.settings import Settings
from nccl_tf.records.spread import spread
from nccl_tf.reports.records import Records, spread_of
from nccl_tf.streams.catalog import get_dataset

ROOT = Path(__file__).parents[1]
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """A study.

    Args:
        folder: Of its plan.
        records: Folders of published records.
        plugins: Files that register its methods.
    """

    folder: Path
    records: tuple[Path, ...]
    plugins: tuple[str, ...] = ()

    @property
    def plan(self) -> dict[str, Any]:
        """The plan as TOML has it."""
        return tomllib.loads((self.folder / "plan.toml").read_text())

    def cells(self) -> list["Cell"]:
        """Every system in every setting, in the order of the plan."""
        load_plugins(self.plugins)
        path, plan = self.folder / "chosen.toml", self.plan
        chosen = tomllib.loads(path.read_text()) if path.exists() else {}
        return [
            Cell(plan, setting, system, chosen.get(setting["name"], {}).get(system["name"]))
            for setting in plan["settings"]
            for system in plan["systems"]
        ]

    def results(self, records: Iterable[Record]) -> dict[str, list["Result"]]:
        """The results of each setting by its title, the most accurate first, those without last."""
        # Of a run that has several records the first one counts.
        by_key = {(r.settings_hash, r.seed): r for r in reversed([*records])}
        found: dict[str, list[Result]] = {}
        for cell in self.cells():
            keys = [(cell.settings().digest(), seed) for seed in cell.seeds] if cell.chosen else []
            rows = found.setdefault(cell.setting["title"], [])
            rows.append(Result(cell, tuple(by_key[key] for key in keys if key in by_key)))
        return {title: sorted(rows, key=Result.order) for title, rows in found.items()}

    def run_missing(self, words: Sequence[str]) -> None:
        """Tune each system that is not tuned, and make the runs that have no record.

        Args:
            words: Flags of runs, such as `--workers=2`.

        Raises:
            UserError: A run was refused.
            Interrupted: A signal came; runs that were under way have written a checkpoint.
        """
        flags = parse_flag_words([*words, *(f"--plugin={name}" for name in self.plugins)])
        options = resolve_options(flags)
        found = [Records.below(Path(folder)) for folder in (*self.records, options.output_dir)]
        records = [record for one in found for record in one.records]
        for cell in self.cells():
            name = f"{cell.system['name']} in {cell.setting['name']}"
            if cell.refusal():
                print(f"{name}: left out, {cell.refusal()}", flush=True)
                continue
            if cell.chosen is None:
                seeded = replace(options, seeds=tuple(cell.tuning_seeds))
                points = grid_points({**cell.trial_flags(), **flags_of_how(flags)}, seeded)
                trials = [trial for point in points for trial in point.runs]
                print(f"{name}: {len(trials)} trials", flush=True)
                best = rank(points, finish(trials, flags, print))[0]
                if best.problem:
                    print(f"no point of the grid finished: {best.problem}", flush=True)
                    continue
                cell = replace(cell, chosen=self._choose(cell, best, len(points)))
            wanted = [(cell.flag_values(), cell.seeds)]
            runs = missing_runs(wanted, flags, options, records)
            print(f"{name}: {len(runs)} of {len(cell.seeds)} runs missing", flush=True)
            finish(runs, flags, print)

    def _choose(self, cell: "Cell", best: RankedPoint, points: int) -> dict[str, Any]:
        """Append the best point to `chosen.toml`, and return it."""
        chosen = dict(best.point.values)
        if best.point.flags["smoothness"] is not None:  # Which the grid lowers where alpha L is 1.
            chosen["smoothness"] = best.point.flags["smoothness"]
        accuracy = spread(100 * best.accuracies)
        lines = [
            f"\n[{cell.setting['name']}.{cell.system['name']}]  # the best of {points} points, "
            f"accuracy {accuracy.mean:.2f} +- {accuracy.std:.2f} % over {accuracy.size} seeds",
            *(f"{name} = {json.dumps(value)}" for name, value in chosen.items()),
        ]
        with (self.folder / "chosen.toml").open("a") as file:
            file.write("\n".join(lines) + "\n")
        return chosen


@dataclass(frozen=True)
class Cell:
    """A system in a setting.

    Args:
        plan: The plan.
        setting: Its table in the plan.
        system: Its table in the plan.
        chosen: The point that tuning has chosen, by the names of flags; None before it has.
    """

    plan: Values
    setting: Values
    system: Values
    chosen: Values | None

    @property
    def seeds(self) -> list[int]:
        """Those that are reported."""
        return self.system.get("seeds", {}).get(self.setting["name"], self.setting["seeds"])

    @property
    def tuning_seeds(self) -> list[int]:
        """Those of the trials."""
        own = self.system.get("tuning_seeds", {})
        return own.get(self.setting["name"], self.setting["tuning_seeds"])

    @property
    def grid(self) -> Mapping[str, Sequence[Any]]:
        """The values that are tried, by the names of flags: of the setting, or of its data set."""
        family = get_dataset(self.setting["flags"]["dataset"]).family
        return self.system["grids"].get(self.setting["name"], self.system["grids"].get(family))

    def is_at_an_end(self, name: str) -> bool:
        """Whether the value of a flag that tuning chose is the lowest or highest of several."""
        values, chosen = self.grid[name], (self.chosen or {}).get(name)
        is_number = all(isinstance(value, int | float) for value in values)
        return is_number and len(set(values)) > 1 and chosen in (min(values), max(values))

    @property
    def title(self) -> str:
        """The system's name in tables."""
        return self.system.get("title") or get_method(self.system["flags"]["method"]).title

    def flag_values(self, *, tuning: bool = False) -> dict[str, Any]:
        """Values of all flags by name, None where one is not set; the chosen ones among them."""
        row = get_method(self.system["flags"]["method"])
        options = {option.name for option in OPTIONS}
        shared = {
            name: value
            for name, value in self.plan["flags"].items()
            if name not in options or not row.option_refusal(name)
        }
        tuned = self.setting.get("tuning_flags", {}) if tuning else self.chosen or {}
        values = {**shared, **self.setting["flags"], **self.system["flags"], **tuned}
        return parse_flag_words([f"--{name}={_word(value)}" for name, value in values.items()])

    def settings(self) -> Settings:
        """The settings at the chosen point."""
        return resolve(self.flag_values())

    def sweeps(self) -> list[Sweep]:
        """The grid as the command `sweep` takes it."""
        words = [f"--sweep={name}:{_word(values)}" for name, values in self.grid.items()]
        return parse_flag_words(words)["sweep"]

    def trial_flags(self) -> dict[str, Any]:
        """Values of all flags with the grid, as the command `sweep` takes them."""
        return self.flag_values(tuning=True) | {"sweep": self.sweeps()}

    def refusal(self) -> str:
        """Why the system does not run here, "" if it does."""
        left_out = self.system.get("left_out", {})
        if self.setting["name"] in left_out:
            return left_out[self.setting["name"]]
        flags = self.flag_values()
        dataset = get_dataset(flags["dataset"])
        head = flags["head"] or dataset.default_head
        return get_method(flags["method"]).unsupported_reason(dataset.kind, head) or ""


@dataclass(frozen=True)
class Result:
    """A system in a setting, and the records of its reported seeds."""

    cell: Cell
    records: tuple[Record, ...]

    @property
    def averaged(self) -> bool:
        """Whether every record has figures of the averaged weights."""
        return bool(self.records) and all(r.averaged_accuracy_matrix for r in self.records)

    def order(self) -> tuple[bool, float]:
        """The most accurate first, those without records last."""
        mean = spread_of(self.records, "average_accuracy").mean
        return (not self.records, -mean if self.records else 0.0)

    def metrics(self, kind: str = "") -> np.ndarray:
        """Accuracy in percent and forgetting of each record, of `kind` "" or "averaged_": [n, 2]"""
        names = (f"{kind}average_accuracy", f"{kind}forgetting")
        return np.array([[getattr(record, name) for name in names] for record in self.records]) * (
            100,
            1,
        )


def main(study: Study, show: Any, about: str) -> None:
    """Run a study's command line: print or write its page, or make the runs that are missing.

    Args:
        study: The study.
        show: Is called with the arguments and the records; returns the exit code.
        about: What it is, for the help.
    """
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--check", action="store_true", help="change nothing, exit 1 if not as made"
    )
    parser.add_argument("--figures", action="store_true", help="draw the pictures too")
    parser.add_argument(
        "--run_missing", action="store_true",
        help="tune, and run what has no record; flags of runs such as --workers=2 may follow",
    )  # fmt: skip
    asked, words = parser.parse_known_args()
    try:
        if words and not asked.run_missing:
            raise UserError(f"received {' '.join(words)} without --run_missing: leave it out")
        if asked.run_missing:
            study.run_missing(words)
            sys.exit(0)
        load_plugins(study.plugins)
        found = [Records.below(folder) for folder in study.records]
        for problem in (problem for one in found for problem in one.broken):
            raise UserError(problem)
        sys.exit(show(asked, [record for one in found for record in one.records]))
    except Interrupted as interrupted:
        print(f"{interrupted}; the same command resumes", file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except UserError as error:
        print(format_error(error), file=sys.stderr)
        sys.exit(error.exit_code)


def _word(value: Any) -> str:
    """A value of TOML as the command line has it."""
    if isinstance(value, list | tuple):
        return ",".join(map(_word, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
