"""The command `report`: everything that records tell, as one page or as tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.commands._output import warn_skipped_records
from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.experiment.config.flag_table import COMMAND_FLAGS
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.reports.html import report_page, report_tables
from nccl_tf.reports.records import by_settings, matches, read_records
from nccl_tf.reports.table import as_csv, as_latex


def run(flag_values: Mapping[str, Any]) -> int:
    """Write the report's files into `--report_dir`.

    Raises:
        UserError: There are no fitting records, or a file cannot be written.
    """
    form = COMMAND_FLAGS["format"].value(flag_values)
    options = resolve_options(flag_values)
    records, broken = read_records(Path(options.output_dir))
    warn_skipped_records(broken, len(records))
    records = [record for record in records if matches(record, flag_values)]
    if not by_settings(records):
        raise UserError(
            f"no record below {options.output_dir} is of evaluated tasks and of that --dataset, "
            "--method and --seeds: leave them out, or give another --output_dir"
        )
    if form == "html":
        files = {"report.html": report_page(records)}
    elif form == "latex":
        files = {"tables.tex": as_latex(report_tables(records))}
    else:
        files = {f"{table.name}.csv": as_csv(table) for table in report_tables(records)}
    folder = Path(COMMAND_FLAGS["report_dir"].value(flag_values))
    for name, text in files.items():
        with translate_os_error(folder / name, "choose another --report_dir"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        print(f"see {folder / name}")
    return 0
