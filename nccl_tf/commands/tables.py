"""The command `tables`: finished runs as a table."""

import sys
from collections.abc import Mapping
from typing import Any

from nccl_tf.commands._command import ALL, FILTERS, OF_RECORDS, Command
from nccl_tf.commands._output import read_asked
from nccl_tf.errors import UserError


def run(flag_values: Mapping[str, Any]) -> int:
    """Print finished runs, in Markdown unless on a terminal.

    Raises:
        UserError: There are no records that are whole, none that are asked for, or none of
            evaluated tasks. Broken records are left out, and named on stderr.
    """
    from nccl_tf.reports.table import titled_markdown
    from nccl_tf.reports.tables import results_by_stream, results_text

    found = read_asked(flag_values)
    records = found.records
    if not found.by_settings():
        raise UserError(
            f"no record is of evaluated tasks, all {len(records)} are of trials: "
            "the command report shows those; for a table give another --output_dir"
        )
    on_terminal = sys.stdout.isatty()
    text = results_text(records) if on_terminal else titled_markdown(results_by_stream(records))
    print(text, end="")
    return 0


COMMAND = Command(
    "tables", "[--output_dir=DIR]", "finished runs in Markdown", run,
    first=OF_RECORDS,
    defaults=ALL,
    helps=FILTERS,
)  # fmt: skip
