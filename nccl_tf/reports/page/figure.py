"""The plotly charts of the page: those of each view, which the page's menu chooses.

Plotly takes tags and entities in a text for its own: every text of a record is escaped before.
"""

import html
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.reports.figures.style import COLORS
from nccl_tf.reports.page.groups import STEP_SIZES, Group, best_of_methods
from nccl_tf.reports.records import spread_of

Json = dict[str, Any]
Chart = dict[str, Any]
"""What plotly draws: "data", a list of traces, and "layout"."""

_DRAWN = 6
"""Methods whose best settings have a line when the page opens, besides joint and cumulative
training."""
_MOST_LINES, _MOST_ROWS = 100, 40
"""Settings of a view that the curves, and the matrix, have; more take long to draw."""
_MOST_ENTRIES = 20
"""Settings that have an entry each in the legend of the points; of more a method has one."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_DASHES = ("solid", "dash", "dot", "dashdot")
_FILLS = ("", "-open", "-dot", "-open-dot")
_LETTERS = 30
"""In a line of a name: longer ones have several."""
_LINE, _ROW = 13, 22
"""Pixels of a line of a row's name, and of a row of the matrix at least."""
_PANEL, _GAP = 190, 60
"""Pixels of a panel of step sizes with the gap below it, and of that gap."""


class _Look(NamedTuple):
    """The appearance of a group, and whether it is drawn when the view opens."""

    name: str
    color: str
    symbol: str
    fill: str
    dash: str
    visible: bool | str


def method_numbers(streams: Mapping[str, Sequence[Group]]) -> dict[str, int]:
    """A number for each method of the page: those of the largest stream first, the best first."""
    numbers: dict[str, int] = {}
    for groups in sorted(streams.values(), key=len, reverse=True):
        for group in groups:
            numbers.setdefault(group.method, len(numbers))
    return numbers


def charts(groups: Sequence[Group], numbers: Mapping[str, int]) -> dict[str, Chart]:
    """The charts of a view by the names of their places on the page.

    They are "curves" (accuracy over the tasks), "points" (accuracy against forgetting), "steps"
    (step sizes) and "matrix" (accuracies after a task, with a slider); one without data is missing.

    Args:
        groups: What is shown, the best first; one or more.
        numbers: As of `method_numbers`.
    """
    looks = _looks(groups, numbers)
    made = {
        "curves": _curves(looks),
        "points": _points(looks),
        "steps": _steps(looks),
        "matrix": _matrix(groups),
    }
    return {name: chart for name, chart in made.items() if chart["data"]}


def _looks(groups: Sequence[Group], numbers: Mapping[str, int]) -> list[tuple[Group, _Look]]:
    """A method has its colour and symbol, and its settings differ in their dashes and fills."""
    best = best_of_methods(groups)
    drawn = [group for group in best if not (group.joint or group.cumulative)][:_DRAWN]
    drawn += [group for group in best if group.joint][:1]
    drawn += [group for group in best if group.cumulative][:1]
    places: Counter[str] = Counter()
    looks = []
    for group in groups:
        number = numbers[group.method]
        dash, fill = (each[places[group.method] % len(each)] for each in (_DASHES, _FILLS))
        places[group.method] += 1
        # Those of one colour have other symbols.
        color = COLORS[number % len(COLORS)]
        symbol = _SYMBOLS[(number + number // len(COLORS)) % len(_SYMBOLS)]
        visible = True if group in drawn else "legendonly"
        look = _Look(_in_lines(group.label), color, symbol, fill, dash, visible)
        looks.append((group, look))
    return looks


def _in_lines(text: str) -> str:
    """A name, whole, in lines for plotly."""
    lines = textwrap.wrap(text, _LETTERS, break_on_hyphens=False) or [""]
    return "<br>".join(html.escape(line, False) for line in lines)


def _curves(looks: Sequence[tuple[Group, _Look]]) -> Chart:
    best = best_of_methods([group for group, _ in looks])
    traces: list[Json] = []
    tasks = np.arange(1)
    for place, (group, look) in enumerate(looks):
        if place < _MOST_LINES or group in best:
            mean, std, _ = group.curve()
            hover = "after task %{x}: %{y:.1f} ± %{customdata:.1f} %"
            tasks = np.arange(1, len(mean) + 1)
            traces += _line(look, "", tasks, mean, mean - std, mean + std, std, hover)
    layout = {
        "height": 440,
        "xaxis": {"title": {"text": "tasks trained"}, "dtick": _ticks(len(tasks))},
        "yaxis": {"title": {"text": "accuracy (%)"}},
    }
    return {"data": traces, "layout": layout}


def _ticks(tasks: int) -> int:
    return 1 if tasks <= 10 else 5


def _line(
    look: _Look, axis: str, x: Any, y: Any, low: Any, high: Any, customdata: Any, hover: str
) -> list[Json]:
    """A line and the band around it; a click in the legend acts on all of a group.

    Args:
        look: Of the group.
        axis: Number of the panel's axes, "" for the first.
        x: Float [n], like those that follow.
        y: Of the line.
        low: Of the band.
        high: Of the band.
        customdata: What `hover` shows beside x and y.
        hover: Plotly's template.
    """
    known = np.isfinite(low) & np.isfinite(high)
    x, y, low, high = np.asarray(x), *(_rounded(values) for values in (y, low, high))
    shared = {
        "type": "scatter", "name": look.name, "legendgroup": look.name,
        "visible": look.visible, "xaxis": f"x{axis}", "yaxis": f"y{axis}",
    }  # fmt: skip
    marks = {"mode": "lines"} if axis else {
        "mode": "lines+markers", "marker": {"symbol": look.symbol, "size": 7}
    }  # fmt: skip
    return [
        {**shared, "mode": "lines", "fill": "toself", "hoverinfo": "skip", "showlegend": False,
         "x": np.concatenate([x[known], x[known][::-1]]),
         "y": np.concatenate([high[known], low[known][::-1]]),
         "fillcolor": f"{look.color}26", "line": {"width": 0}},
        {**shared, **marks, "x": x, "y": y, "customdata": _rounded(customdata),
         "connectgaps": True, "showlegend": axis == "",
         "line": {"color": look.color, "dash": look.dash}, "hovertemplate": hover},
    ]  # fmt: skip


def _rounded(values: Any) -> Any:
    """To six digits, which are more than a chart shows, and fewer than a float's in a file."""
    values = np.asarray(values, np.float64)
    return np.array([float(f"{value:.6g}") for value in values.ravel()]).reshape(values.shape)


def _points(looks: Sequence[tuple[Group, _Look]]) -> Chart:
    """A point for each group that has a forgetting.

    Each has an entry of the legend; where there are many, a method has one for all of its own.
    """
    few = len(looks) <= _MOST_ENTRIES
    entries: dict[str, list[tuple[Group, _Look]]] = {}
    for group, look in looks:
        if not np.isnan(spread_of(group.records, "forgetting").mean):
            entries.setdefault(group.label if few else group.method, []).append((group, look))
    bar = {"type": "data", "thickness": 1, "width": 3, "color": "#999999"}
    traces = []
    for name, members in entries.items():
        accuracy, forgetting = (
            _rounded([spread_of(group.records, number)[:2] for group, _ in members]).T
            for number in ("average_accuracy", "forgetting")
        )
        _, look = members[0]
        traces.append({
            "type": "scatter", "mode": "markers", "name": _in_lines(name), "showlegend": True,
            "x": forgetting[0], "error_x": bar | {"array": forgetting[1]},
            "y": 100 * accuracy[0], "error_y": bar | {"array": 100 * accuracy[1]},
            "text": [look.name for _, look in members],
            "marker": {"color": look.color, "size": 9, "symbol": look.symbol + look.fill * few},
            "hovertemplate": "%{text}<br>accuracy %{y:.1f} %, forgetting %{x:.3f}<extra></extra>",
        })  # fmt: skip
    layout = {
        "height": 440,
        "xaxis": {"title": {"text": "forgetting (less is better)"}},
        "yaxis": {"title": {"text": "average accuracy (%)"}},
    }
    return {"data": traces, "layout": layout}


def _steps(looks: Sequence[tuple[Group, _Look]]) -> Chart:
    """A panel for each step size that was measured, one above the other."""
    names = [name for name in STEP_SIZES if any(name in group.steps for group, _ in looks)]
    traces: list[Json] = []
    for group, look in looks:
        shown = False
        for place, name in enumerate(names):
            if name not in group.steps:
                continue
            step, low, median, high = group.steps[name]
            hover = (
                "up to step %{x}: median %{y:.3g}<br>90 % of the windows "
                "%{customdata[0]:.3g} to %{customdata[1]:.3g}"
            )
            band, line = _line(
                look, str(place + 2), step, median, low, high, np.stack([low, high], 1), hover
            )
            traces += [band, {**line, "showlegend": not shown}]
            shown = True
    height = _PANEL * len(names)
    layout: Json = {"height": 100 + height, "margin": {"l": 60, "r": 10, "t": 50, "b": 50}}
    layout["annotations"] = []
    for place, name in enumerate(names):
        axis, top, size = place + 2, 1 - place / len(names), (_PANEL - _GAP) / height
        layout["annotations"].append({
            "text": f"<b>{STEP_SIZES[name]}</b>", "x": 0, "xref": "paper", "xanchor": "left",
            "y": top, "yref": "paper", "yanchor": "bottom", "showarrow": False,
        })  # fmt: skip
        layout[f"xaxis{axis}"] = {"anchor": f"y{axis}", "matches": "x2"}
        layout[f"yaxis{axis}"] = {
            "anchor": f"x{axis}", "domain": [max(top - size, 0), top], "exponentformat": "power",
        }  # fmt: skip
    if names:
        layout[f"xaxis{len(names) + 1}"]["title"] = {"text": "training step"}
    return {"data": traces, "layout": layout}


def _matrix(groups: Sequence[Group]) -> Chart:
    """The mean matrices, of which a slider chooses a row; a row of the chart for each settings."""
    rows = list(groups if len(groups) <= _MOST_ROWS else best_of_methods(groups))[:_MOST_ROWS]
    matrices = np.stack([group.matrices().mean(0) for group in rows])
    tasks = matrices.shape[-1]
    matrices[:, ~np.tri(tasks, dtype=bool)] = np.nan  # Of tasks that are not trained yet.
    lowest = np.floor(np.nanmin(matrices) / 10) * 10
    matrices = matrices.round(2)
    names = [_in_lines(group.label) for group in rows]
    heights = [max(_ROW, _LINE * (1 + name.count("<br>")) + 4) for name in names]
    edges = np.cumsum([0, *heights])
    data = {
        "type": "heatmap", "x": np.arange(1, tasks + 1), "y": edges, "z": matrices[:, -1],
        "text": [[name] * tasks for name in names],
        "colorscale": "Cividis", "zmin": min(lowest, 90), "zmax": 100, "xgap": 1, "ygap": 1,
        "texttemplate": "%{z:.0f}", "showscale": False, "hoverongaps": False,
        "hovertemplate": "%{text}<br>on task %{x}: %{z:.1f} %<extra></extra>",
    }  # fmt: skip
    steps = [
        {"method": "restyle", "args": [{"z": [matrices[:, i]]}, [0]], "label": str(i + 1)}
        for i in range(tasks)
    ]
    layout = {
        "height": int(edges[-1]) + 150,
        "margin": {"l": 20, "r": 10, "t": 50, "b": 100},
        "xaxis": {"side": "top", "showgrid": False, "dtick": _ticks(tasks),
                  "title": {"text": "accuracy (%) on task"}},
        "yaxis": {"range": [int(edges[-1]), 0], "showgrid": False, "automargin": True,
                  "zeroline": False, "tickfont": {"size": 10}, "ticktext": names,
                  "tickvals": (edges[:-1] + edges[1:]) / 2},
        "sliders": [{"steps": steps, "active": tasks - 1, "pad": {"t": 10},
                     "currentvalue": {"prefix": "after task ", "font": {"size": 12}}}],
    }  # fmt: skip
    return {"data": [data], "layout": layout}
