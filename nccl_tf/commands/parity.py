"""The command `parity`: the paper's numbers beside those of our records."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.commands._output import say_broken, say_written
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.options import Options, resolve_options
from nccl_tf.experiment.launch.pool import finish
from nccl_tf.experiment.run.record import FILE_NAME
from nccl_tf.experiment.run.train import Run
from nccl_tf.reports.generated_files import as_markdown, put_between_marks
from nccl_tf.reports.paper.parity import (
    DIFFERS,
    chosen_cells,
    compare,
)
from nccl_tf.reports.paper.parity_tables import parities
from nccl_tf.reports.paper.published import Published
from nccl_tf.reports.tables import find_records

_SEEDS = (0, 1, 2, 3, 4)
# What a run of a cell takes from the command line: how it is run, not what.
_HOW = (
    "plugin", "output_dir", "overwrite", "data_dir", "manual_dir", "checkpoint_every",
    "record_every", "steps_per_execution", "tensorboard", "diagnostics",
)  # fmt: skip


def run(given: Mapping[str, Any]) -> int:
    """Print each cell with its verdict, or put the tables into a Markdown file.

    Returns:
        1 if `--strict` and a cell differs, or `--check` finds other tables in the file; else 0.

    Raises:
        UserError: No such table or cells, a run was refused, or the file lacks its marks.
        Interrupted: A signal came during `--run_missing`.
    """
    options = resolve_options(given)
    for flag in ("json", "run_missing"):
        if given[flag] and given["table"] is None:
            raise UserError(f"--{flag} is for one table: give --table too, such as --table=T9")
    if given["check"] and given["readme"] is None:
        raise UserError("--check compares a file: give --readme=results/README.md too")
    cells = chosen_cells(given["table"], given["dataset"], given["method"])
    if given["run_missing"]:
        _run_missing(cells, given, options)
    records, broken = find_records(Path(options.output_dir))
    code = _show(cells, records, given)
    say_broken(broken, len(records))
    if not records:
        print(f"no {FILE_NAME} below {options.output_dir}: every cell is missing", file=sys.stderr)
    return code


def _show(
    cells: Sequence[Published], records: Sequence[Mapping[str, Any]], given: Mapping[str, Any]
) -> int:
    comparisons = compare(cells, records)
    strict = int(bool(given["strict"]) and any(c.verdict == DIFFERS for c in comparisons))
    if given["json"]:
        content = {"table": given["table"], "cells": [c.as_json() for c in comparisons]}
        print(json.dumps(content, indent=1, allow_nan=False))
        return strict
    page = parity_page(cells, records, every=given["table"] is not None)
    if given["readme"] is None:
        print(page, end="")
        return strict
    path, check = Path(given["readme"]), bool(given["check"])
    current = put_between_marks(path, "parity", page, check=check)
    return say_written(path, current, check) or strict


def parity_page(
    cells: Sequence[Published], records: Sequence[Mapping[str, Any]], *, every: bool
) -> str:
    """The tables in Markdown with their titles; those without any run of ours only on request."""
    found = [parity for parity in parities(cells, records) if every or parity.has_runs]
    tables = [table for parity in found for table in parity.tables()]
    return "\n".join(f"### {table.title}\n\n{as_markdown(table)}" for table in tables)


def _run_missing(cells: Sequence[Published], given: Mapping[str, Any], options: Options) -> None:
    seeds = _SEEDS if given["seeds"] is None else options.seeds
    how = {name: given[name] for name in _HOW}
    wanted = {cell.settings().digest(): {**how, **cell.flags()} for cell in cells}
    there = {(r["settings_hash"], r["seed"]) for r in find_records(Path(options.output_dir))[0]}
    runs = [
        Run.of(flags, options, seed)
        for digest, flags in wanted.items()
        for seed in seeds
        if options.overwrite or (digest, seed) not in there
    ]
    print(f"{len(runs)} runs are missing", file=sys.stderr)
    finish(runs, given, lambda line: print(line, file=sys.stderr, flush=True))
