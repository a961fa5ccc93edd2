"""Records of finished runs: reading those below a folder, choosing, grouping and naming them."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.files import list_names
from nccl_tf.records.record import FILE_NAME, Record, read_record
from nccl_tf.records.settings import EARLIER_STEPS, EARLIER_TASKS
from nccl_tf.records.spread import Spread, spread
from nccl_tf.reports.record_lines import SUFFIX, Key, RecordLine, read_lines, record_key
from nccl_tf.streams.catalog import DATASETS, scheme_of, short_name


class RecordedRun(NamedTuple):
    """A finished run.

    Attributes:
        record: Its record.
        folder: The run's folder; None for a published record.
    """

    record: Record
    folder: Path | None


@dataclass(frozen=True)
class Records:
    """The finished runs of a folder.

    Args:
        runs: Those whose records are whole, one for each settings and seed.
        broken: What is wrong with each of the others, a sentence.

    Example:

    ```python
    from pathlib import Path

    from nccl_tf.reports.records import Records, method_title

    found = Records.below(Path("results"))
    for seeds in found.of(dataset="split_mnist", method="er_ring,agem").by_settings():
        print(method_title(seeds[0]), len(seeds))
    ```
    """

    runs: Sequence[RecordedRun]
    broken: Sequence[str] = ()

    @classmethod
    def below(cls, folder: Path) -> "Records":
        """Those below a folder, at any depth: folders of runs, and files of published records.

        Broken is a record that is not whole, and one of a run that another record is of.
        """
        runs: dict[Key, RecordedRun] = {}
        broken = []
        for path in files_below(folder, is_record_file):
            for line in _read_result(path) if path.name == FILE_NAME else read_lines(path):
                if line.record is None:
                    broken.append(line.problem)
                    continue
                key = record_key(line.record)
                if key in runs:
                    broken.append(
                        f"{line.place} is the same run as another record: delete one of them"
                    )
                run_folder = path.parent if path.name == FILE_NAME else None
                runs.setdefault(key, RecordedRun(line.record, run_folder))
        return cls(list(runs.values()), broken)

    @classmethod
    def required(cls, folder: Path) -> "Records":
        """As `below`, where there has to be a record.

        Raises:
            UserError: The folder is missing or holds no record that is whole.
        """
        found = cls.below(folder)
        if not found.runs and found.broken:
            raise UserError(
                f"none of {len(found.broken)} records below {folder} can be read; {found.broken[0]}"
            )
        if not found.runs:
            list_names(folder)  # says that it may not be read
            raise UserError(
                f"no {FILE_NAME} and no published record below {folder}: expected a folder of "
                "finished runs as --output_dir"
            )
        return found

    @property
    def records(self) -> list[Record]:
        """The record of each run."""
        return [run.record for run in self.runs]

    def of(
        self,
        dataset: str | None = None,
        method: str | None = None,
        seeds: Collection[int] | None = None,
    ) -> "Records":
        """Those of a data set, of a method and of some seeds; None is any.

        Args:
            dataset: A name or several, such as "split_mnist,split_cifar10"; a path such as
                "folder:/data/pets" is the name that its records have, "folder:pets".
            method: A name or several.
            seeds: Of the runs.
        """
        named = (dataset or "").split(",")
        datasets = {short_name(one) if scheme_of(one) else one for one in named}
        methods = set((method or "").split(","))
        asked = [
            run
            for run in self.runs
            if (dataset is None or run.record.dataset in datasets)
            and (method is None or run.record.method in methods)
            and (seeds is None or run.record.seed in seeds)
        ]
        return Records(asked, self.broken)

    def by_settings(self, *, tuning: bool = False) -> list[list[Record]]:
        """As the function `by_settings`, of all of them."""
        return by_settings(self.records, tuning=tuning)


def files_below(folder: Path, is_wanted: Callable[[str], bool]) -> list[Path]:
    """The files below a folder, at any depth, whose names are wanted; links are not followed."""
    # Not `rglob`, which calls itself for each level of folders.
    paths, waiting = [], [os.fspath(folder)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except (OSError, ValueError):  # A folder that is missing, or that may not be read.
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif is_wanted(entry.name):
                paths.append(Path(entry.path))
    return sorted(paths)


def is_record_file(name: str) -> bool:
    """Whether a file of that name holds records."""
    return name == FILE_NAME or name.endswith(SUFFIX)


def _read_result(path: Path) -> list[RecordLine]:
    try:
        return [RecordLine(str(path), read_record(path))]
    except UserError as error:
        return [RecordLine(str(path), None, str(error))]


def is_trial(record: Record) -> bool:
    """Whether a record is of a run on tuning data."""
    return record.settings.tasks == "tuning"


def by_settings(records: Sequence[Record], *, tuning: bool = False) -> list[list[Record]]:
    """The records of the evaluated tasks in groups of the same settings, each by seed.

    Args:
        records: Of finished runs.
        tuning: Whether runs on what is held out for tuning are kept too.

    Returns:
        A list for each settings, in the order of the catalog and of the registry.
    """
    groups: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: record.seed):
        if tuning or not is_trial(record):
            groups.setdefault(record.settings_hash, []).append(record)
    return sorted(groups.values(), key=_sort_key)


def independent(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without those that follow from others."""
    left_out = {"memory_slots"} if settings.get("memory_capacity") is not None else set()
    if settings.get("first_task_learning_rate") == settings["learning_rate"]:
        left_out.add("first_task_learning_rate")
    return {name: value for name, value in settings.items() if name not in left_out}


def spread_of(records: Sequence[Record], name: str) -> Spread:
    """The spread of a number over runs; nan where one has none."""
    return spread([getattr(record, name) for record in records])


def titles(groups: Sequence[Sequence[Record]]) -> list[str]:
    """A name for each group of `by_settings`, different from those of the others.

    The method, with the precision where it is not single, and the beginning of the settings' hash
    where several share these. A method that the registry does not know has the name in its records.
    """
    names = [method_title(group[0]) for group in groups]
    return [
        f"{name} {group[0].settings_hash[:8]}" if names.count(name) > 1 else name
        for name, group in zip(names, groups, strict=True)
    ]


def method_title(record: Record) -> str:
    """The method's name in tables, with the precision where it is not single.

    A run of a model that had learned before is "continued".
    """
    method = METHODS.get(record.method)
    title = method.title if method else record.method
    precision = record.settings.precision
    title = title if precision == "float32" else f"{title}, {precision}"
    earlier = {EARLIER_STEPS, EARLIER_TASKS} & record.settings.hyperparameters.keys()
    return f"{title}, continued" if earlier else title


def _sort_key(group: Sequence[Record]) -> tuple[Any, ...]:
    first = group[0]
    return (
        _rank(first.dataset, DATASETS),
        first.head,
        _rank(first.method, METHODS),
        first.settings.learning_rate,
        first.settings_hash,
    )


def _rank(name: str, table: Mapping[str, Any]) -> tuple[int, str]:
    """Position in a table; names that it does not hold come last, in alphabetical order."""
    return (list(table).index(name) if name in table else len(table), name)
