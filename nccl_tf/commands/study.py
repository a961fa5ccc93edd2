"""The command `study`: systems compared under one protocol, as a plan fixes it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.commands.sweep import ranking_table
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.study.missing import run_missing
from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.record_lines import record_key
from nccl_tf.reports.records import find_records
from nccl_tf.reports.table import as_markdown


def run(flag_values: Mapping[str, Any]) -> int:
    """Run what a plan lacks.

    Raises:
        UserError: The plan is bad, or a run was refused.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    options = resolve_options(flag_values)
    if flag_values["plan"] is None:
        raise UserError("study needs a plan: give --plan=flags/comparison/plan.toml")
    plan = read_plan(Path(flag_values["plan"]))
    if flag_values["run_missing"]:
        folders = (options.output_dir, flag_values["publish_dir"] or "results")
        finished = {
            record_key(record) for folder in folders for record in find_records(Path(folder))[0]
        }
        run_missing(
            plan.cells(flag_values["setting"], flag_values["system"]),
            finished,
            flag_values,
            options,
            lambda line: print(line, flush=True),
            lambda ranking: as_markdown(ranking_table(ranking)),
        )
    return 0
