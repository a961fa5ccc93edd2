"""The command `tables`: finished runs as a table."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.commands._output import print_file_status, warn_skipped_records
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.reports.generated_files import put_between_marks
from nccl_tf.reports.records import read_records
from nccl_tf.reports.table import as_markdown
from nccl_tf.reports.tables import results_table, results_text


def run(flag_values: Mapping[str, Any]) -> int:
    """Print the table of finished runs, in Markdown unless on a terminal, or put it into a README.

    Returns:
        1 if `--check` finds another table in the README, else 0.

    Raises:
        UserError: There are no records that are whole, or the README lacks its marks. Broken ones
            are left out, and named on stderr.
    """
    records, broken = read_records(Path(resolve_options(flag_values).output_dir))
    warn_skipped_records(broken, len(records))
    if flag_values["readme"] is None and sys.stdout.isatty():
        print(results_text(records), end="")
        return 0
    table = as_markdown(results_table(records))
    if flag_values["readme"] is None:
        if flag_values["check"]:
            raise UserError("--check compares a file: give --readme=README.md too")
        print(table, end="")
        return 0
    path, check = Path(flag_values["readme"]), bool(flag_values["check"])
    return print_file_status(path, put_between_marks(path, "results", table, check=check), check)
