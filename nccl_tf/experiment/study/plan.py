"""The plan of a study: settings, systems, and the grid that each is tuned on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_tf.arguments.hyperparameters import OPTIONS
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.flags import Sweep, parse_flag_words
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.methods.registry import get_method
from nccl_tf.streams.catalog import get_dataset

Values = Mapping[str, Any]
Grid = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, kw_only=True)
class StudySetting:
    """A stream with a memory, in which systems are compared.

    Args:
        name: Name of its folder of flag files.
        title: Name in headings.
        flags: What a run is given, by the names of flags.
        seeds: Of the runs that are reported.
        tuning_seeds: Of the trials.
        tuning_flags: What trials are given in place of some of `flags`.
    """

    name: str
    title: str
    flags: Values
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    tuning_flags: Values = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class System:
    """A method, its options and the grid it is tuned on.

    Args:
        name: Name of its flag files.
        flags: What a run is given beside the setting's flags; `method` is one of them.
        grids: Values to try by the names of flags, for a setting by its name, or for a family of
            data sets such as "mnist".
        title: Name in tables; that of its method by default.
        seeds: Those that are reported in a setting of that name, in place of the setting's.
        tuning_seeds: Those of the trials, likewise.
        left_out: Why it does not run in a setting of that name.
    """

    name: str
    flags: Values
    grids: Mapping[str, Grid]
    title: str = ""
    seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    tuning_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is compared, and how.

    Args:
        folder: Of the plan's file, and of the flag files that tuning writes.
        title: Heading of the page.
        text: Its first paragraphs, in Markdown.
        most_trials: The largest number of points of a grid.
        flags: What every run is given; an option that a method refuses is left out.
        settings: In the order in which they run.
        systems: In the order in which they run.
        compared_with: Names of systems that the page compares all others with, in pairs by seed.
        winner: Name of the system that stands beside all others in a table and a picture of its
            own; "" before there is one.
    """

    folder: Path
    title: str
    text: str
    most_trials: int
    settings: tuple[StudySetting, ...]
    systems: tuple[System, ...]
    flags: Values = field(default_factory=dict)
    compared_with: tuple[str, ...] = ()
    winner: str = ""

    def cells(
        self, settings: Sequence[str] | None = None, systems: Sequence[str] | None = None
    ) -> list["Cell"]:
        """Each system in each setting, of all or of those named.

        Raises:
            UserError: The plan has none of that name.
        """
        for kind, asked, rows in (
            ("setting", settings, self.settings),
            ("system", systems, self.systems),
        ):
            names = [row.name for row in rows]
            for name in asked or ():
                if name not in names:
                    raise UserError(
                        f"--{kind}={name} is not in the plan: expected one of {', '.join(names)}"
                    )
        return [
            Cell(self, setting, system)
            for setting in self.settings
            for system in self.systems
            if (not settings or setting.name in settings)
            and (not systems or system.name in systems)
        ]

    def runs(self) -> set[tuple[str, int]]:
        """Hash of the settings and seed of every run that is reported, as far as it is tuned.

        Raises:
            UserError: A flag file is not of this plan.
        """
        result = set()
        for cell in self.cells():
            chosen = None if cell.refusal() else cell.chosen()
            if chosen is not None:
                result |= {(chosen[1].digest(), seed) for seed in cell.seeds}
        return result


@dataclass(frozen=True)
class Cell:
    """A system in a setting."""

    plan: Plan
    setting: StudySetting
    system: System

    @property
    def flag_file(self) -> Path:
        """Where what tuning has chosen stands."""
        return self.plan.folder / self.setting.name / f"{self.system.name}.flags"

    @property
    def seeds(self) -> tuple[int, ...]:
        """Those that are reported."""
        return self.system.seeds.get(self.setting.name, self.setting.seeds)

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """Those of the trials."""
        return self.system.tuning_seeds.get(self.setting.name, self.setting.tuning_seeds)

    @property
    def grid(self) -> Grid:
        """The values that are tried, by the names of flags.

        Raises:
            UserError: The system has none for the setting.
        """
        family = get_dataset(str(self.setting.flags.get("dataset"))).family
        for name in (self.setting.name, family):
            if name in self.system.grids:
                return self.system.grids[name]
        raise UserError(
            f"the system {self.system.name} has no grid for {self.setting.name}: expected one of "
            f"that name, or of {family}"
        )

    def flag_values(self, more: Values | None = None, *, tuning: bool = False) -> dict[str, Any]:
        """Values of all flags by name, with `more` of them; None where one is not set.

        Raises:
            UserError: There is no such flag, or a value cannot be read.
        """
        row = get_method(str(self.system.flags.get("method")))
        options = [option.name for option in OPTIONS]
        shared = {
            name: value
            for name, value in self.plan.flags.items()
            if name not in options or not row.option_refusal(name)
        }
        tuned = self.setting.tuning_flags if tuning else {}
        values = {**shared, **self.setting.flags, **tuned, **self.system.flags, **(more or {})}
        return parse_flag_words([f"--{name}={_word(value)}" for name, value in values.items()])

    def trial_flags(self) -> dict[str, Any]:
        """Values of all flags with the grid, as the command `sweep` takes them."""
        return self.flag_values(tuning=True) | {"sweep": self.sweeps()}

    def sweeps(self) -> list[Sweep]:
        """The grid as flags hold its values: a plan may have a number as text.

        Raises:
            UserError: The system has no grid for the setting, or a value cannot be read.
        """
        words = [f"--sweep={name}:{_word(values)}" for name, values in self.grid.items()]
        return parse_flag_words(words)["sweep"]

    def refusal(self) -> str:
        """Why the system does not run here, "" if it does."""
        if self.setting.name in self.system.left_out:
            return self.system.left_out[self.setting.name]
        settings = self.flag_values()
        row = get_method(settings["method"])
        dataset = get_dataset(settings["dataset"])
        return row.unsupported_reason(dataset.kind, settings["head"] or dataset.default_head) or ""

    def chosen(self) -> tuple[dict[str, Any], Settings] | None:
        """The flag values and the settings that tuning has chosen; None before it has.

        Raises:
            UserError: The flag file is not of this plan.
        """
        if not self.flag_file.is_file():
            return None
        values = parse_flag_words([f"--flagfile={self.flag_file.resolve()}"])
        # A sweep lowers NCCL's L where alpha L would reach 1.
        names = (*self.grid, "smoothness")
        point = {name: values[name] for name in names if values[name] is not None}
        settings, expected = resolve(values), resolve({**self.flag_values(), **point})
        tried = all(
            values[sweep.name] in sweep.values
            for sweep in self.sweeps()
            if sweep.name != "smoothness"
        )
        if not tried or settings != expected:
            raise UserError(
                f"{self.flag_file} is not what the plan can have chosen: expected a point of its "
                "grid with the flags of its setting; delete the file to choose again"
            )
        return values, settings


def _word(value: Any) -> str:
    """A value of TOML as the command line has it."""
    if isinstance(value, list | tuple):
        return ",".join(map(_word, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
