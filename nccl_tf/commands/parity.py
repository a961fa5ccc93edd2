"""The command `parity`: the paper's numbers beside those of our records."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_tf.commands._command import ALL, CHECK, FILTERS, RAY_ADDRESS, README, Command
from nccl_tf.commands._output import print_file_status, warn_skipped_records
from nccl_tf.errors import UserError
from nccl_tf.experiment.launch.pool import finish
from nccl_tf.experiment.run.train import Run
from nccl_tf.records.options import OPTIONS, Options, resolve_options
from nccl_tf.records.record import FILE_NAME
from nccl_tf.records.setting import OUTPUT, Setting

if TYPE_CHECKING:
    from nccl_tf.reports.paper.published import Published

_SEEDS = (0, 1, 2, 3, 4)


def run(flag_values: Mapping[str, Any]) -> int:
    """Print each cell with its verdict, or put the tables into Markdown files.

    Returns:
        1 if `--strict` and a cell differs, or `--check` finds other tables in a file; else 0.

    Raises:
        UserError: No such table or cells, a run was refused, or the file lacks its marks.
        Interrupted: A signal came during `--run_missing`.
    """
    from nccl_tf.reports.paper.parity import select_cells
    from nccl_tf.reports.records import find_records

    options = resolve_options(flag_values)
    for flag in ("json", "run_missing"):
        if flag_values[flag] and flag_values["table"] is None:
            raise UserError(f"--{flag} is for one table: give --table too, such as --table=T9")
    if flag_values["json"] and flag_values["readme"] is not None:
        raise UserError("--json prints one table and --readme writes into a file: leave one out")
    if flag_values["check"] and flag_values["readme"] is None:
        raise UserError("--check compares files: give --readme=docs/results too")
    _check_readme(flag_values)
    cells = select_cells(flag_values["table"], flag_values["dataset"], flag_values["method"])
    if flag_values["run_missing"]:
        _run_missing(cells, flag_values, options)
    records, broken = find_records(Path(options.output_dir))
    if flag_values["seeds"] is not None:
        records = [record for record in records if record["seed"] in options.seeds]
    code = _show(cells, records, flag_values)
    warn_skipped_records(broken, len(records))
    if not records:
        print(f"no {FILE_NAME} below {options.output_dir}: every cell is missing", file=sys.stderr)
    return code


def _check_readme(flag_values: Mapping[str, Any]) -> None:
    chosen = [f"--{name}" for name in ("table", "dataset", "method") if flag_values[name]]
    if flag_values["readme"] is not None and Path(flag_values["readme"]).is_dir() and chosen:
        raise UserError(
            f"--readme={flag_values['readme']} is a folder, whose pages show every table: leave "
            f"out {' and '.join(chosen)}, or name a file"
        )


def _show(
    cells: "Sequence[Published]",
    records: Sequence[Mapping[str, Any]],
    flag_values: Mapping[str, Any],
) -> int:
    from nccl_tf.reports.generated_files import put_between_marks
    from nccl_tf.reports.paper.parity import DIFFERS, compare
    from nccl_tf.reports.paper.parity_pages import parity_page, put_nccl, put_parity

    comparisons = compare(cells, records)
    strict = int(bool(flag_values["strict"]) and any(c.verdict == DIFFERS for c in comparisons))
    if flag_values["json"]:
        content = {"table": flag_values["table"], "cells": [c.as_json() for c in comparisons]}
        print(json.dumps(content, indent=1, allow_nan=False))
        return strict
    every = flag_values["table"] is not None
    if flag_values["readme"] is None:
        print(parity_page(cells, records, every=every), end="")
        return strict
    path, check = Path(flag_values["readme"]), bool(flag_values["check"])
    if path.is_dir():
        written = put_parity(path, cells, records, check=check)
    else:
        chosen = any(flag_values[name] for name in ("table", "dataset", "method"))
        made = None if chosen else put_nccl(path, cells, records, check=check)
        if made is None:
            page = parity_page(cells, records, every=every)
            made = put_between_marks(path, "parity", page, check=check)
        written = {path: made}
    codes = [print_file_status(name, current, check) for name, current in written.items()]
    return max(strict, *codes)


def _run_missing(
    cells: "Sequence[Published]", flag_values: Mapping[str, Any], options: Options
) -> None:
    from nccl_tf.reports.record_lines import record_key
    from nccl_tf.reports.records import find_records

    seeds = _SEEDS if flag_values["seeds"] is None else options.seeds
    how = {name: flag_values[name] for name in OPTIONS} | {"seeds": None}
    by_digest = {cell.settings().digest(): {**cell.flags(), **how} for cell in cells}
    finished = {record_key(record) for record in find_records(Path(options.output_dir))[0]}
    runs = [
        Run.from_flags(flags, options, seed)
        for digest, flags in by_digest.items()
        for seed in seeds
        if options.overwrite or (digest, seed) not in finished
    ]
    print(f"{len(runs)} runs are missing", file=sys.stderr)
    finish(runs, flag_values, lambda line: print(line, file=sys.stderr, flush=True))


COMMAND = Command(
    "parity", "[--table=T9]", "beside the paper's numbers", run,
    first=("table", "method", "dataset", "readme", "check", "json", "strict", "run_missing",
           "seeds", "output_dir"),
    of_runs=tuple(OPTIONS),
    only_missing={*OPTIONS, "ray_address"} - {"output_dir", "seeds", "plugin"},
    flags=(
        Setting(
            "table", "text", topic=OUTPUT, default_doc="all",
            help="table of the paper, T1 to T13; --dataset and --method choose among its cells",
        ),
        README,
        CHECK,
        Setting(
            "json", "bool", False, topic=OUTPUT, help="print the cells as one JSON object",
        ),
        Setting(
            "strict", "bool", False, topic=OUTPUT, help="exit 1 if a cell differs",
        ),
        Setting(
            "run_missing", "bool", False, topic=OUTPUT,
            help=(
                f"first run what a cell lacks of --seeds ({','.join(map(str, _SEEDS))} by default)"
            ),
        ),
        RAY_ADDRESS,
    ),
    defaults=ALL,
    helps=FILTERS,
)  # fmt: skip
