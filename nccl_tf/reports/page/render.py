"""Writes the page of the runs: one file of HTML, made by plotly and itables, that loads nothing."""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.records.record import Record
from nccl_tf.reports.costs import COSTS, cost_cells, times_over_finetuning
from nccl_tf.reports.page.figure import charts, method_numbers
from nccl_tf.reports.page.groups import Group, streams_of, views_of
from nccl_tf.reports.records import RecordedRun, by_settings, spread_of
from nccl_tf.reports.table import Table

_STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1a1a1a; --pale: #555; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181d; --ink: #e6e6e6; --pale: #a8adb5; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif;
  margin: 0 auto; max-width: 84rem; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 1.8rem 0 .2rem; }
p { max-width: 50rem; } .note { color: var(--pale); font-size: .85rem; } a { color: inherit; }
.wide { overflow-x: auto; } #matrix { min-width: 30rem; }
select { font: inherit; max-width: 100%; }
table { border-collapse: collapse; font-size: .78rem; font-variant-numeric: tabular-nums; }
table.dataTable { margin: 0 !important; }
table.dataTable td, table.dataTable th { white-space: nowrap; }
table.dataTable th { white-space: normal; }
table.dataTable td.words { white-space: normal; min-width: 8rem; }
table.dataTable td:first-child, table.dataTable th:first-child {
  position: sticky; left: 0; background: var(--paper); }
table.dataTable > thead > tr > th, table.dataTable > tbody > tr > td {
  padding: .3rem .25rem; vertical-align: top; }
div.dt-container div.dt-layout-row { margin: .3rem 0; }
details th, details td { padding: .1rem .5rem; text-align: left; }
summary { cursor: pointer; margin: .4rem 0; }
"""
_INTRO = (
    "Accuracy is the mean over the evaluated tasks after the last one, forgetting the mean drop "
    "from each task's best accuracy before; mean ± population standard deviation over seeds."
)
_FIGURE_NOTE = (
    "The menu chooses the stream, and the memory size (or none), batch size and passes that "
    "methods are compared with: those of most methods come first. The best settings of six methods "
    "and of joint and cumulative training have a line; a click in the legend shows or hides "
    "others, the best hundred and the best of each method. Bands and bars: one standard deviation "
    "over seeds."
)
_COSTS_NOTE = (
    "Bytes stored: what the method keeps beside its network and the optimizer's. Examples passed: "
    "rows that go forward through the network while it learns, replayed ones included. Time: of "
    "training steps, over that of fine-tuning with the same stream, network and batches on the "
    "same device; empty where there is no such run, or the number is not known."
)
_RUNS_NOTE = "Every number, setting and version of a run: report --format=csv, or --format=parquet."
_CHARTS = {
    "curves": ("Accuracy over the tasks so far", ""),
    "points": ("Accuracy against forgetting", ""),
    "steps": (
        "Step sizes",
        "Of runs with a steps.csv: median over the windows and seeds of a fortieth of the "
        "training, and a band that holds 90 % of them.",
    ),
    "matrix": (
        "Accuracy on each task",
        "The slider chooses the task after which each settings has its row.",
    ),
}
"""The places of charts, in the order of the page, with their headings and notes."""
_SCRIPT = """
const text = document.getElementById("views").textContent;
const menu = document.getElementById("menu");
const dark = matchMedia("(prefers-color-scheme: dark)"), narrow = matchMedia("(max-width: 700px)");
function show() {
  document.documentElement.classList.toggle("dark", dark.matches);
  // Black is one of the methods' colours.
  const all = JSON.parse(dark.matches ? text.replaceAll("#000000", "#f2f2f2") : text);
  const view = all.views[menu.value];
  for (const name of all.names) {
    const place = document.getElementById(name), chart = view.charts[name];
    place.closest("section").hidden = !chart;
    if (!chart) continue;
    const layout = {font: {size: 12}, hovermode: "closest", paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)", margin: {l: 60, r: 10, t: 20, b: 50}, ...chart.layout,
      modebar: {bgcolor: "rgba(0,0,0,0)"}, hoverlabel: {namelength: -1, align: "left"},
      template: all.templates[dark.matches ? "dark" : "light"]};
    if (narrow.matches && name != "matrix") {
      layout.legend = {orientation: "h", y: -60 / chart.layout.height, maxheight: 180};
      layout.height += 180;
    }
    Plotly.react(place, chart.data, layout, all.config);
  }
  const stream = document.getElementById("stream");
  stream.textContent = view.stream;
  stream.href = "#" + view.table;
}
menu.onchange = dark.onchange = narrow.onchange = show;
show();
"""
_NUMBERS = (
    ("accuracy %", "average_accuracy", 100, 2),
    ("forgetting", "forgetting", 1, 4),
)
_AVERAGED = (
    ("averaged accuracy %", "averaged_average_accuracy", 100, 2),
    ("averaged forgetting", "averaged_forgetting", 1, 4),
)
"""Columns of the settings: title, name in a record, factor and digits."""
_OF_RUNS = (
    ("accuracy %", "average_accuracy", 100, 2),
    ("forgetting", "forgetting", 1, 4),
    ("learning accuracy %", "learning_accuracy", 100, 2),
    ("steps", "steps", 1, 0),
    ("training s", "train_seconds", 1, 1),
    ("evaluation s", "eval_seconds", 1, 1),
    ("peak memory MB", "peak_memory_bytes", 1e-6, 0),
)
"""Columns of the runs, like those of the settings."""
_WORDS = ("run of", "what differs", "stream", "made with")
"""Columns whose texts break into lines."""
_ONE_PAGE = 10
"""Rows of a table that is shown whole, without pages and a search."""
# Without the buttons that would send the data to plotly's servers.
_CONFIG = {
    "displaylogo": False,
    "responsive": True,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
}


def report_page(
    runs: Sequence[RecordedRun], beside_published: Sequence[Table] = ()
) -> tuple[str, list[str]]:
    """The page of finished runs: a figure, a table of settings for each stream, a table of all
    runs, and those beside published numbers.

    The same runs give the same bytes. Every text of a record is escaped where it stands.

    Args:
        runs: Finished runs, one or more.
        beside_published: Tables of them beside published numbers.

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
        from plotly.io import json
    except ImportError as error:
        raise UserError(
            f"the page needs plotly, itables and pandas, and {error.name} is not installed: "
            "pip install nccl_tf[report], or take --format=csv"
        ) from error
    streams, problems = streams_of(runs)
    templates = {
        "light": io.templates["plotly_white"].to_plotly_json(),
        "dark": io.templates["plotly_dark"].to_plotly_json(),
    }
    parts = [
        _figures(streams, templates, json.to_json_plotly),
        f'<h2>Settings</h2><p class="note">{_COSTS_NOTE}</p>',
    ]
    rows = []
    ratios = times_over_finetuning(by_settings([run.record for run in runs], tuning=True))
    for number, (title, groups) in enumerate(streams.items()):
        name = _table_name(number)
        parts.append(f'<h3 id="of_{name}">{html.escape(title)}</h3>')
        parts.append(_sortable([_settings_row(group, ratios) for group in groups], name))
        rows += [_run_row(title, group, record) for group in groups for record in group.records]
    parts.append(f'<h2>Runs</h2><p class="note">{_RUNS_NOTE}</p>')
    parts.append(_sortable(rows, "runs"))
    parts += _beside_published(beside_published)
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


def _table_name(number: int) -> str:
    """The name of the table of settings of a stream, from 0."""
    return f"settings{number}"


def _figures(
    streams: Mapping[str, Sequence[Group]],
    templates: Mapping[str, Any],
    as_json: Callable[[Any], str],
) -> str:
    """The menu of views, the places of their charts, and what draws them.

    Args:
        streams: The groups of each stream by its title.
        templates: Plotly's, "light" and "dark".
        as_json: Plotly's writer, which escapes what would end a script.
    """
    numbers = method_numbers(streams)
    views: list[dict[str, Any]] = []
    menu: list[str] = []
    largest = max(streams, key=lambda title: len(streams[title]))
    for place, (title, groups) in enumerate(streams.items()):
        menu.append(f'<optgroup label="{html.escape(title)}">')
        for first, (name, members) in enumerate(views_of(groups).items()):
            chosen = " selected" if title == largest and first == 0 else ""
            menu.append(
                f'<option value="{len(views)}"{chosen}>{html.escape(name)} '
                f"({len(members)} settings)</option>"
            )
            table = f"of_{_table_name(place)}"
            views.append({"charts": charts(members, numbers), "stream": title, "table": table})
        menu.append("</optgroup>")
    content = {"views": views, "names": list(_CHARTS), "templates": templates, "config": _CONFIG}
    sections = [
        f'<section><h3>{heading}</h3><p class="note">{note}</p>'
        f'<div class="wide"><div id="{name}"></div></div></section>'
        for name, (heading, note) in _CHARTS.items()
    ]
    return "\n".join(
        [
            f'<h2>Figures</h2><p class="note">{_FIGURE_NOTE}</p>',
            f'<p><select id="menu" aria-label="stream and budget">{"".join(menu)}</select> '
            '<br><a id="stream" href="#" title="its table"></a></p>',
            *sections,
            f'<script type="application/json" id="views">{as_json(content)}</script>',
            f"<script>{_SCRIPT}</script>",
        ]
    )


def _settings_row(group: Group, ratios: Mapping[str, float]) -> dict[str, Any]:
    first = group.records[0]
    # What sets settings apart comes first: a narrow window shows the first columns.
    row: dict[str, Any] = {
        "method": group.method,
        "learning rate": first.settings.learning_rate,
        "memory": first.settings.memory_capacity,
        "what differs": group.change,
        "settings": first.settings_hash[:8],
        "seeds": len(group.records),
    }
    cells = (cell.replace(",", "") for cell in cost_cells(group.records, ratios))
    costs = {name: None if c == "-" else c for name, c in zip(COSTS, cells, strict=True)}
    return row | _means(group, _NUMBERS) | costs | _means(group, _AVERAGED)


def _means(group: Group, numbers: Sequence[tuple[str, str, int, int]]) -> dict[str, Any]:
    """Cells of mean and standard deviation over the seeds."""
    row: dict[str, Any] = {}
    for title, name, scale, digits in numbers:
        mean, std = (scale * value for value in spread_of(group.records, name)[:2])
        row[title] = None if np.isnan(mean) else f"{mean:.{digits}f}"
        several = len(group.records) > 1 and not np.isnan(std)
        row[f"± {title}"] = f"{std:.{digits}f}" if several else None
    return row


def _run_row(stream: str, group: Group, record: Record) -> dict[str, Any]:
    numbers = {
        title: None
        if getattr(record, name) is None
        else f"{scale * getattr(record, name):.{digits}f}"
        for title, name, scale, digits in _OF_RUNS
    }
    return {
        "run of": group.label,
        "seed": record.seed,
        **numbers,
        "settings": record.settings_hash[:8],
        "stream": stream,
        "commit": (record.commit or "")[:8],
        "made with": "; ".join([record.device or "", *_remarks(record)]).strip("; "),
    }


def _remarks(record: Record) -> list[str]:
    """What a reader of a run may have to know of how it was made."""
    remarks = {
        "XLA": record.xla,
        "TensorFloat-32": record.tensorfloat32,
        "package modified": record.package_modified,
        "commit not in the history": record.commit_in_history is False,
        "costs from settings": record.costs_from_settings,
    }
    return [text for text, holds in remarks.items() if holds]


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
    frame = frame.loc[:, (frame != "").any()]
    words = [place for place, title in enumerate(frame.columns) if title in _WORDS]
    layout: dict[str, Any] = {
        "topStart": {"buttons": [{"extend": "csvHtml5", "text": "CSV", "filename": name}]}
    }
    is_paged = len(rows) > _ONE_PAGE
    if not is_paged:
        layout |= dict.fromkeys(("topEnd", "bottomStart", "bottomEnd"))
    below_titles = {"target": 1, "content": ["order", "searchDropdown"]}
    table = to_html_datatable(
        frame,
        table_id=name,
        connected=False,
        display_logo_when_loading=False,
        showIndex=False,
        maxBytes=0,
        maxColumns=0,
        classes="display",
        style="width: 100%",
        columnControl=[below_titles] if len(rows) > 1 else [],
        ordering={"indicators": False},
        columnDefs=[{"className": "words", "targets": words}],
        paging=is_paged,
        layout=layout,
    )
    return f'<div class="wide">{table}</div>'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _beside_published(tables: Sequence[Table]) -> list[str]:
    import pandas

    parts = []
    for table in tables:
        rows = [[cell.strip("`") for cell in row] for row in table.rows]
        cells = pandas.DataFrame(rows, columns=table.names).to_html(index=False, border=0)
        notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
        parts.append(
            f"<details><summary>{html.escape(table.title)}</summary>"
            f'<div class="wide">{cells}</div>{notes}</details>'
        )
    return ["<h2>Beside published numbers</h2>", *parts] if parts else []
