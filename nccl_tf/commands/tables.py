"""The command `tables`: finished runs as a table."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.commands._command import ALL, CHECK, FILTERS, OF_RECORDS, README, Command
from nccl_tf.commands._output import print_file_status, read_asked
from nccl_tf.errors import UserError
from nccl_tf.records.options import resolve_options
from nccl_tf.records.setting import OUTPUT, Setting
from nccl_tf.reports.record_lines import Record


def run(flag_values: Mapping[str, Any]) -> int:
    """Print finished runs, in Markdown unless on a terminal, or put them between a file's marks.

    Returns:
        1 if `--check` finds other tables in the file, else 0.

    Raises:
        UserError: There are no records that are whole, none that are asked for, none of evaluated
            tasks, or the file to write lacks its marks. Broken records
            are left out, and named on stderr.
    """
    from nccl_tf.reports.generated_files import put_between_marks
    from nccl_tf.reports.table import as_markdown, titled_markdown
    from nccl_tf.reports.tables import accuracy_and_forgetting, results_by_stream, results_text

    if flag_values["check"] and flag_values["readme"] is None:
        raise UserError("--check compares a file: give --readme=docs/results.md too")
    folder = Path(resolve_options(flag_values).output_dir)
    records = _asked_records(folder, flag_values)
    if flag_values["readme"] is None and sys.stdout.isatty():
        print(results_text(records), end="")
        return 0
    tables = results_by_stream(records)
    page = titled_markdown(tables)
    if flag_values["settings"] is not None and flag_values["readme"] is not None:
        # The page says what the chosen settings have in common.
        page = "\n".join(as_markdown(accuracy_and_forgetting(table)) for table in tables)
    if flag_values["readme"] is None:
        print(page, end="")
        return 0
    path, check = Path(flag_values["readme"]), bool(flag_values["check"])
    return print_file_status(path, put_between_marks(path, "results", page, check=check), check)


def _asked_records(folder: Path, flag_values: Mapping[str, Any]) -> Sequence[Record]:
    """The records that a table is made of, one at least."""
    from nccl_tf.reports.records import by_settings, of_settings

    records: Sequence[Record] = [run.record for run in read_asked(folder, flag_values)]
    if flag_values["settings"] is not None:
        records = of_settings(records, flag_values["settings"])
    if not by_settings(records):
        raise UserError(
            f"no record is of evaluated tasks, all {len(records)} are of trials: "
            "the command report shows those; for a table give another --output_dir"
        )
    return records


COMMAND = Command(
    "tables", "[--output_dir=DIR]", "finished runs in Markdown", run,
    first=(*OF_RECORDS, "settings"),
    flags=(
        Setting(
            "settings", "names", topic=OUTPUT, default_doc="all",
            help=(
                "first digits of the hashes of the settings to show; with --readme method, "
                "accuracy and forgetting alone"
            ),
        ),
        README,
        CHECK,
    ),
    defaults=ALL,
    helps=FILTERS,
)  # fmt: skip
