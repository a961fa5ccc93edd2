"""The command `parity`: the paper's numbers beside those of our records."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_tf.arguments.parameters import OUTPUT, Setting
from nccl_tf.commands._command import ALL, FILTERS, RAY_ADDRESS, Command
from nccl_tf.commands._output import warn_skipped_records
from nccl_tf.errors import UserError
from nccl_tf.experiment.launch.missing import missing_runs
from nccl_tf.experiment.launch.pool import finish
from nccl_tf.records.options import RUN_OPTIONS, RunOptions, resolve_options
from nccl_tf.records.record import FILE_NAME

if TYPE_CHECKING:
    from nccl_tf.commands.paper.published import Published

_SEEDS = (0, 1, 2, 3, 4)


def run(flag_values: Mapping[str, Any]) -> int:
    """Print each cell with its verdict, as JSON or as tables in Markdown.

    Returns:
        1 if `--strict` and a cell differs, else 0.

    Raises:
        UserError: No such table or cells, or a run was refused.
        Interrupted: A signal came during `--run_missing`.
    """
    from nccl_tf.commands.paper.parity import DIFFERS, compare, select_cells
    from nccl_tf.commands.paper.parity_tables import parity_page
    from nccl_tf.reports.records import Records

    options = resolve_options(flag_values)
    table = flag_values["table"]
    for flag in ("json", "run_missing"):
        if flag_values[flag] and table is None:
            raise UserError(f"--{flag} is for one table: give --table too, such as --table=T9")
    cells = select_cells(table, flag_values["dataset"], flag_values["method"])
    if flag_values["run_missing"]:
        _run_missing(cells, flag_values, options)
    found = Records.below(Path(options.output_dir))
    records = found.of(seeds=flag_values["seeds"]).records
    comparisons = compare(cells, records)
    if flag_values["json"]:
        content = {"table": table, "cells": [c.as_json() for c in comparisons]}
        print(json.dumps(content, indent=1, allow_nan=False))
    else:
        print(parity_page(cells, records, every=table is not None), end="")
    warn_skipped_records(found.broken, len(found.runs))
    if not records:
        print(f"no {FILE_NAME} below {options.output_dir}: every cell is missing", file=sys.stderr)
    return int(bool(flag_values["strict"]) and any(c.verdict == DIFFERS for c in comparisons))


def _run_missing(
    cells: "Sequence[Published]", flag_values: Mapping[str, Any], options: RunOptions
) -> None:
    from nccl_tf.reports.records import Records

    seeds = _SEEDS if flag_values["seeds"] is None else options.seeds
    records = Records.below(Path(options.output_dir)).records
    wanted = ((cell.flags(), seeds) for cell in cells)
    runs = missing_runs(wanted, flag_values, options, records)
    print(f"{len(runs)} runs are missing", file=sys.stderr)
    finish(runs, flag_values, lambda line: print(line, file=sys.stderr, flush=True))


COMMAND = Command(
    "parity", "[--table=T9]", "beside the paper's numbers", run,
    first=("table", "method", "dataset", "json", "strict", "run_missing", "seeds",
           "output_dir"),
    flags_of_runs=tuple(RUN_OPTIONS),
    flags_with_run_missing={*RUN_OPTIONS, "ray_address"} - {"output_dir", "seeds", "plugin"},
    flags=(
        Setting(
            "table", "text", topic=OUTPUT, default_doc="all",
            help="table of the paper, T1 to T13; --dataset and --method choose among its cells",
        ),
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
