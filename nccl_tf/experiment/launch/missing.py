"""The runs that are wanted and have no record: what parity and studies make."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nccl_tf.experiment.run.train import Run
from nccl_tf.records.options import RUN_OPTIONS, RunOptions
from nccl_tf.records.record import Record


def flags_of_how(flag_values: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of a command that say how and where its runs are made; each run has its own seed.

    Args:
        flag_values: All of the command's, by name.
    """
    return {name: flag_values[name] for name in RUN_OPTIONS} | {"seeds": None}


def missing_runs(
    wanted: Iterable[tuple[Mapping[str, Any], Sequence[int]]],
    flag_values: Mapping[str, Any],
    options: RunOptions,
    records: Iterable[Record],
) -> list[Run]:
    """The runs without a record, those of equal settings once; with `--overwrite` every run.

    Args:
        wanted: Flags that say what is run, and seeds.
        flag_values: Of the command, which say how.
        options: Of the command.
        records: Of finished runs.

    Raises:
        UserError: A flag is bad.
    """
    how = flags_of_how(flag_values)
    runs = {
        (run.settings.digest(), run.seed): run
        for flags, seeds in wanted
        for run in (Run.from_flags({**flags, **how}, options, seed) for seed in seeds)
    }
    finished = {(record.settings_hash, record.seed) for record in records}
    return [run for key, run in runs.items() if options.overwrite or key not in finished]
