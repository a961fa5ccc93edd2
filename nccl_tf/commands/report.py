"""The command `report`: everything that records tell, as one page, as tables or as data."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_tf.arguments.choices import REPORT_FORMATS
from nccl_tf.arguments.parameters import OUTPUT, Setting
from nccl_tf.commands._command import ALL, FILTERS, OF_RECORDS, Command
from nccl_tf.commands._output import read_asked, warn_skipped_records
from nccl_tf.errors import UserError
from nccl_tf.records.files import write_file

if TYPE_CHECKING:
    from nccl_tf.reports.records import Records

_FORMAT = Setting(
    "format", "choice", "html", topic=OUTPUT, choices=REPORT_FORMATS,
    help=(
        "html (one page), latex (the tables, a document), tabular (those of results as fragments "
        "of LaTeX), csv or parquet (a row for each run), or means (CSV, a row for each settings)"
    ),
)  # fmt: skip
_REPORT_DIR = Setting(
    "report_dir", "text", "report", topic=OUTPUT, help="folder of its files"
)  # fmt: skip


def run(flag_values: Mapping[str, Any]) -> int:
    """Write the report's file into `--report_dir`.

    Raises:
        UserError: There are no fitting records, what makes the file is not installed, or it cannot
            be written.
    """
    form = _FORMAT.value(flag_values)
    name, content = _content(form, read_asked(flag_values))
    path = Path(_REPORT_DIR.value(flag_values)) / name
    write_file(path, content, "free space or choose another --report_dir")
    print(f"see {path}")
    return 0


def _content(form: str, found: "Records") -> tuple[str, bytes]:
    """Name and content of the file."""
    from nccl_tf.commands.paper.parity_tables import tables_with_runs
    from nccl_tf.reports.page.render import report_page
    from nccl_tf.reports.run_table import as_csv, as_parquet, mean_columns, run_columns
    from nccl_tf.reports.table import as_latex, as_tabular
    from nccl_tf.reports.tables import for_a_paper, results_by_stream

    records = found.records
    if form == "csv":
        return "runs.csv", as_csv(run_columns(records)).encode()
    if form == "parquet":
        return "runs.parquet", as_parquet(run_columns(records))
    if form in ("latex", "tabular", "means") and not found.by_settings():
        raise UserError("no record is of evaluated tasks: give --format=html or csv for trials")
    if form == "means":
        return "means.csv", as_csv(mean_columns(records)).encode()
    if form == "tabular":
        return "results.tex", as_tabular(map(for_a_paper, results_by_stream(records))).encode()
    if form == "latex":
        tables = [*results_by_stream(records), *tables_with_runs(records)]
        return "tables.tex", as_latex(tables).encode()
    page, problems = report_page(found.runs, tables_with_runs(records))
    warn_skipped_records(problems, len(found.runs))
    return "report.html", page.encode()


COMMAND = Command(
    "report", "[--format=html]", "runs as one HTML page", run,
    first=("format", "report_dir", *OF_RECORDS),
    flags=(_FORMAT, _REPORT_DIR),
    defaults=ALL,
    helps=FILTERS,
)  # fmt: skip
