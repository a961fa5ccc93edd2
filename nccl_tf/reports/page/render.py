"""Writes the page of the runs: one file of HTML, made by plotly and itables, that loads nothing."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.reports.page.figure import runs_figure
from nccl_tf.reports.page.groups import Group, streams_of
from nccl_tf.reports.paper.parity import select_cells
from nccl_tf.reports.paper.parity_tables import parities
from nccl_tf.reports.records import Record, RecordedRun, mean_std
from nccl_tf.reports.table import Table

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 84rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p { max-width: 50rem; } .note { color: #555; font-size: .85rem; } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .82rem; font-variant-numeric: tabular-nums; }
summary { cursor: pointer; margin: .4rem 0; }
"""
_INTRO = (
    "Accuracy is the mean over the evaluated tasks after the last one, forgetting the mean drop "
    "from each task's best accuracy before; mean ± population standard deviation over seeds."
)
_FIGURE_NOTE = (
    "At first the best settings of six methods and of joint training have a line, with the memory "
    "size (or none), batch size and passes of most methods, which the first axis names; a click in "
    "the legend shows or hides others, the best hundred and the best of each method. Points of "
    "other memory sizes, batch sizes or passes are pale. Bands and bars: "
    "one standard deviation over seeds. The slider chooses the task after which the matrix has "
    "its row of each settings. Step sizes, of runs with a steps.csv: median over the windows and "
    "seeds of a fortieth of the training, and a band that holds 90 % of them."
)
_NUMBERS = (
    ("accuracy %", "average_accuracy", 100, 2),
    ("forgetting", "forgetting", 1, 4),
    ("averaged accuracy %", "averaged_average_accuracy", 100, 2),
    ("averaged forgetting", "averaged_forgetting", 1, 4),
)
"""Columns of the settings: title, name in a record, factor and digits."""
_OF_RUNS = (
    "average_accuracy", "forgetting", "learning_accuracy", "backward_transfer", "forward_transfer",
    "steps", "train_seconds", "eval_seconds", "peak_memory_bytes", "commit", "package_modified",
    "commit_in_history", "device", "tensorfloat32", "xla",
)  # fmt: skip
# Without the buttons that would send the data to plotly's servers.
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


def report_page(runs: Sequence[RecordedRun]) -> tuple[str, list[str]]:
    """The page of finished runs: a figure, a table of settings for each stream, a table of all
    runs, and those beside published numbers.

    The same runs give the same bytes. Every text of a record is escaped where it stands.

    Args:
        runs: Finished runs, one or more.

    Returns:
        The HTML, and a sentence for each steps.csv that cannot be read.

    Raises:
        UserError: plotly, itables or pandas is not installed.
    """
    try:
        import pandas  # noqa: F401
        from itables import options
        from itables.javascript import generate_init_offline_itables_html
        from plotly import io, offline
    except ImportError as error:
        raise UserError(
            f"the page needs plotly, itables and pandas, and {error.name} is not installed: "
            "pip install nccl_tf[report], or take --format=csv"
        ) from error
    streams, problems = streams_of(runs)
    figure = runs_figure(streams)
    figure["layout"]["template"] = io.templates["plotly_white"].to_plotly_json()
    drawn = io.to_html(
        figure, _CONFIG, include_plotlyjs=False, full_html=False, validate=False, div_id="figure"
    )
    parts = [f'<h2>Figures</h2><p class="note">{_FIGURE_NOTE}</p>{drawn}<h2>Settings</h2>']
    rows = []
    for number, (title, groups) in enumerate(streams.items()):
        parts.append(f"<h3>{html.escape(title)}</h3>")
        parts.append(_sortable([_settings_row(group) for group in groups], f"settings{number}"))
        rows += [_run_row(title, group, record) for group in groups for record in group.records]
    parts.append("<h2>Runs</h2>")
    parts.append(_sortable(rows, "runs"))
    parts += _beside_published([run.record for run in runs])
    count = f"{len(rows)} {'run' if len(rows) == 1 else 'runs'}"
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>nccl_tf: results</title>\n<style>{_STYLE}</style>\n"
        f"<script>{offline.get_plotlyjs()}</script>\n</head>\n<body>\n"
        f"{generate_init_offline_itables_html(options.dt_bundle)}"
        f"<h1>Continual learning: {count}</h1>\n<p>{_INTRO}</p>"
    )
    return "\n".join([head, *parts, "</body>\n</html>\n"]), problems


def parity_tables(records: Sequence[Record]) -> list[Table]:
    """The tables beside published numbers, the paper's and later papers', that have a run."""
    cells = select_cells(table=None)
    with_runs = (parity for parity in parities(cells, records) if parity.has_runs)
    return [table for parity in with_runs for table in parity.tables()]


def _settings_row(group: Group) -> dict[str, Any]:
    first = group.records[0]
    # What sets settings apart comes first: a narrow window shows the first columns.
    row: dict[str, Any] = {
        "method": group.method,
        "learning rate": first["settings"]["learning_rate"],
        "memory": first["settings"].get("memory_capacity"),
        "what differs": group.change,
        "settings": first["settings_hash"][:8],
        "seeds": len(group.records),
    }
    for title, name, scale, digits in _NUMBERS:
        mean, std = (scale * value for value in mean_std(group.records, name))
        row[title] = None if np.isnan(mean) else f"{mean:.{digits}f}"
        several = len(group.records) > 1 and not np.isnan(std)
        row[f"± {title}"] = f"{std:.{digits}f}" if several else None
    return row


def _run_row(stream: str, group: Group, record: Record) -> dict[str, Any]:
    return {
        "settings": group.label,
        "seed": record["seed"],
        **{name: record.get(name) for name in _OF_RUNS},
        "hash": record["settings_hash"][:8],
        "stream": stream,
    }


def _sortable(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    """A table that sorts, filters by each column and exports; columns without a value are left out.

    Args:
        rows: Values by the names of the columns.
        name: Of the table, and of the file that it exports.
    """
    import pandas
    from itables import to_html_datatable

    # As text, because pandas would write NaN for a missing number, and 200 as 200.0 beside it.
    frame = pandas.DataFrame([{k: _cell(value) for k, value in row.items()} for row in rows])
    table = to_html_datatable(
        frame.loc[:, (frame != "").any()],
        table_id=name,
        connected=False,
        display_logo_when_loading=False,
        showIndex=False,
        maxBytes=0,
        maxColumns=0,
        columnControl=["order", ["searchDropdown"]],
        ordering={"indicators": False},
        layout={"topStart": {"buttons": [{"extend": "csvHtml5", "text": "CSV", "filename": name}]}},
    )
    return f'<div class="wide">{table}</div>'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _beside_published(records: Sequence[Record]) -> list[str]:
    import pandas

    parts = []
    for table in parity_tables(records):
        rows = [[cell.strip("`") for cell in row] for row in table.rows]
        cells = pandas.DataFrame(rows, columns=table.names).to_html(index=False, border=0)
        notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
        parts.append(
            f"<details><summary>{html.escape(table.title)}</summary>"
            f'<div class="wide">{cells}</div>{notes}</details>'
        )
    return ["<h2>Beside published numbers</h2>", *parts] if parts else []
