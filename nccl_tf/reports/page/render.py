"""Writes the page of the runs: one file of HTML that loads nothing else."""

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2

from nccl_tf.reports.page.data import page_data
from nccl_tf.reports.paper.parity import select_cells
from nccl_tf.reports.paper.parity_tables import parities
from nccl_tf.reports.records import Record, RecordedRun
from nccl_tf.reports.table import Table

_STYLES = ("libraries/tabulator_simple.min.css", "page.css")
_SCRIPTS = (
    "libraries/plotly-cartesian.min.js", "libraries/tabulator.min.js",
    "store.js", "tables.js", "charts.js", "matrix.js", "main.js",
)  # fmt: skip


def report_page(runs: Sequence[RecordedRun]) -> tuple[str, list[str]]:
    """The page of finished runs, and a sentence for each steps.csv that cannot be read.

    The same runs give the same bytes. Its scripts are the page's own, allowed by their hashes, and
    it may load nothing; what records hold is JSON that nothing executes.
    """
    data, problems = page_data(runs)
    return write_page(data, parity_tables([run.record for run in runs])), problems


def parity_tables(records: Sequence[Record]) -> list[Table]:
    """The tables beside published numbers, the paper's and later papers', that have a run."""
    cells = select_cells(table=None)
    with_runs = (parity for parity in parities(cells, records) if parity.has_runs)
    return [table for parity in with_runs for table in parity.tables()]


def write_page(data: Mapping[str, Any], parity: Sequence[Table], *, live: bool = False) -> str:
    """The page of these data.

    Args:
        data: As `page_data` gives them.
        parity: The tables beside published numbers.
        live: Whether the page asks the server that it is from for newer data.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nccl_tf.reports.page", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    scripts = list(map(_read, _SCRIPTS))
    return environment.get_template("report.html.jinja").render(
        policy=content_policy(scripts, live=live),
        styles=map(_read, _STYLES),
        scripts=scripts,
        data=as_script_data(data),
        parity=parity,
        live=live,
    )


def content_policy(scripts: Iterable[str], *, live: bool) -> str:
    """The content-security policy that allows these scripts, and no other source of anything."""
    hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts)
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{digest}'" for digest in hashes),
        "style-src": "'unsafe-inline'",  # Both libraries set the styles of single elements.
        "img-src": "data: blob:",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {sources}" for name, sources in rules.items())


def as_script_data(data: Mapping[str, Any]) -> str:
    """JSON in which nothing ends a script element or begins a comment in it."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _read(name: str) -> str:
    return (resources.files("nccl_tf.reports.page") / name).read_text(encoding="utf-8")
