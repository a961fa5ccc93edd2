"""The plotly figure of the page; a menu chooses the stream.

Plotly takes tags and entities in a text for its own: every text of a record is escaped before.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.reports.figures.style import COLORS
from nccl_tf.reports.page.groups import Group, best_of_methods
from nccl_tf.reports.records import mean_std

Json = dict[str, Any]

_DRAWN = 6
"""Methods whose best settings have a line when the page opens, besides joint training."""
_MOST_LINES, _MOST_ROWS = 100, 40
"""Settings of a stream that the curves, and the matrix, have; more take long to draw."""
_LONGEST = 20
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_DASHES = ("solid", "dash", "dot", "dashdot")
_STEPS = {
    "lambda": "Λ, inner product of the gradients",
    "alpha_h": "α<sub>H</sub>, step of the memory gradient",
    "beta_h": "β<sub>H</sub>, step of the stream gradient",
}
_LEGEND, _GAP = 150, 110
"""Pixels."""


def runs_figure(streams: Mapping[str, Sequence[Group]]) -> Json:
    """Curves, accuracy against forgetting, step sizes and accuracy matrix, as plotly's JSON.

    The legend and the slider act on the stream that the menu chooses: at first the largest one.

    Args:
        streams: The groups of each stream by its title, the best first; one stream or more.
    """
    from plotly.subplots import make_subplots

    measured = [group.steps.quantiles for groups in streams.values() for group in groups
                if group.steps is not None]  # fmt: skip
    titles = {"curves": "Accuracy over the tasks so far", "points": "Accuracy against forgetting"}
    titles |= {name: _STEPS[name] for name in _STEPS if any(name in found for found in measured)}
    # The matrix is the last panel, above the slider; its axis, at the top, has its title.
    axes = {name: str(i) if i > 1 else "" for i, name in enumerate([*titles, "matrix"], 1)}
    rows = max(len(_rows(groups)) for groups in streams.values())
    heights = [340, 340, *[170] * (len(axes) - 3), 22 * rows]
    total = sum(heights) + _GAP * (len(axes) - 1)
    subplots = make_subplots(
        len(axes), 1, row_heights=heights, vertical_spacing=_GAP / total,
        subplot_titles=[f"<b>{title}</b>" for title in titles.values()],
    )  # fmt: skip
    layout = subplots.to_plotly_json()["layout"] | {
        "font": {"size": 12}, "height": total + _LEGEND + 200, "hovermode": "closest",
        "margin": {"l": 60, "r": 20, "t": _LEGEND + 90, "b": 110},
        "hoverlabel": {"namelength": -1, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1 + 35 / total, "yanchor": "bottom",
                   "maxheight": _LEGEND},
    }  # fmt: skip
    layout["xaxis"]["title"] = {"text": "tasks trained"}
    layout["yaxis"]["title"] = {"text": "accuracy (%)"}
    layout["xaxis2"]["title"] = {"text": "forgetting"}
    layout["yaxis2"]["title"] = {"text": "average accuracy (%)"}
    steps = [axes[name] for name in axes if name in _STEPS]
    for axis in steps:
        layout[f"xaxis{axis}"]["title"] = {"text": "training step"}
        layout[f"yaxis{axis}"]["exponentformat"] = "power"
    layout[f"xaxis{axes['matrix']}"] |= {
        "title": {"text": "<b>Accuracy matrix, row by row</b>: on task"}, "side": "top",
        "showgrid": False,
    }  # fmt: skip
    layout[f"yaxis{axes['matrix']}"] |= {
        "range": [rows - 0.5, -0.5], "showgrid": False, "tickfont": {"size": 10}, "automargin": True
    }  # fmt: skip
    drawn: list[tuple[list[Json], Json]] = []
    for groups in streams.values():
        drawn.append(_stream(groups, axes, first=sum(len(traces) for traces, _ in drawn)))
    chosen = int(np.argmax([len(groups) for groups in streams.values()]))
    buttons: list[Json] = []
    for number, title in enumerate(streams):
        visible = [
            number == place and trace["visible"]
            for place, (traces, _) in enumerate(drawn)
            for trace in traces
        ]
        update = [{"visible": visible}, drawn[number][1]]
        buttons.append({"label": _plain(title), "method": "update", "args": update})
    scales = [
        {"label": f"step sizes {label}", "method": "relayout",
         "args": [{f"yaxis{axis}.type": kind for axis in steps}]}
        for label, kind in (("linear", "linear"), ("logarithmic", "log"))
    ]  # fmt: skip
    place: Json = {"y": 1 + (_LEGEND + 45) / total, "yanchor": "bottom", "font": {"size": 11}}
    layout["updatemenus"] = [
        {**place, "buttons": buttons, "active": chosen, "x": 0, "xanchor": "left",
         "visible": len(streams) > 1},
        {**place, "buttons": scales, "x": 1, "xanchor": "right", "visible": bool(steps)},
    ]  # fmt: skip
    for name, value in drawn[chosen][1].items():
        part, _, key = name.partition(".")
        layout[part] = {**layout[part], key: value} if key else value
    traces = [trace for traces, _ in drawn for trace in traces]
    shown = zip(traces, buttons[chosen]["args"][0]["visible"], strict=True)
    return {"data": [{**trace, "visible": visible} for trace, visible in shown], "layout": layout}


def _rows(groups: Sequence[Group]) -> list[Group]:
    """Those with a row in the matrix."""
    return list(groups if len(groups) <= _MOST_ROWS else best_of_methods(groups))[:_MOST_ROWS]


def _stream(
    groups: Sequence[Group], axes: Mapping[str, str], first: int
) -> tuple[list[Json], Json]:
    """The traces of a stream, and the values of the layout that it has for itself.

    Args:
        groups: Of the stream.
        axes: How the names of each panel's axes end.
        first: Number of its first trace in the figure.
    """
    best, rows = best_of_methods(groups), _rows(groups)
    looks = _looks(groups)
    lines = [pair for i, pair in enumerate(looks) if i < _MOST_LINES or pair[0] in best]
    heat, slider = _matrix(rows, axes["matrix"], first)
    traces = [heat, *_curves(lines), *_points(looks), *_step_sizes(looks, axes)]
    ticks = 1 if len(heat["x"]) <= 10 else 5
    return traces, {
        "sliders": [slider], "xaxis.dtick": ticks, f"xaxis{axes['matrix']}.dtick": ticks,
        f"yaxis{axes['matrix']}.tickvals": list(range(len(rows))),
        f"yaxis{axes['matrix']}.ticktext": [_plain(_short(group.label)) for group in rows],
    }  # fmt: skip


def _curves(looks: Sequence[tuple[Group, "_Look"]]) -> list[Json]:
    traces = []
    for group, look in looks:
        mean, std = group.curve()
        tasks = np.arange(1, len(mean) + 1)
        traces += [
            _band(tasks, mean - std, mean + std, 0.15, look, "y"),
            {**look.line("y"), "x": tasks, "y": mean, "customdata": std, "mode": "lines+markers",
             "marker": {"symbol": look.symbol, "size": 7}, "connectgaps": True, "showlegend": True,
             "hovertemplate": "after task %{x}: %{y:.1f} ± %{customdata:.1f} %"},
        ]  # fmt: skip
    return traces


def _points(looks: Sequence[tuple[Group, "_Look"]]) -> list[Json]:
    """A point for each group that has a forgetting."""
    known = [pair for pair in looks if not np.isnan(mean_std(pair[0].records, "forgetting")[0])]
    if not known:
        return []
    # Rounded, because plotly finds no ticks between numbers that differ in their last bits.
    accuracy, forgetting = (
        np.array([mean_std(group.records, name) for group, _ in known]).T.round(8)
        for name in ("average_accuracy", "forgetting")
    )
    bar = {"type": "data", "thickness": 1, "width": 3, "color": "#999999"}
    return [
        {"type": "scatter", "mode": "markers", "xaxis": "x2", "yaxis": "y2", "visible": True,
         "x": forgetting[0], "error_x": bar | {"array": forgetting[1]}, "showlegend": False,
         "y": 100 * accuracy[0], "error_y": bar | {"array": 100 * accuracy[1]},
         "text": [_plain(group.label) for group, _ in known],
         "marker": {"color": [look.color for _, look in known], "size": 9,
                    "symbol": [look.symbol for _, look in known]},
         "hovertemplate": "%{text}<br>accuracy %{y:.1f} %, forgetting %{x:.3f}<extra></extra>"}
    ]  # fmt: skip


def _matrix(rows: Sequence[Group], axis: str, place: int) -> tuple[Json, Json]:
    """The trace number `place` of the mean matrices, and its slider."""
    matrices = np.stack([group.matrices().mean(0) for group in rows])
    tasks = matrices.shape[-1]
    matrices[:, ~np.tri(tasks, dtype=bool)] = np.nan  # Of tasks that are not trained yet.
    lowest = np.floor(np.nanmin(matrices) / 10) * 10
    heat = {
        "type": "heatmap", "xaxis": f"x{axis}", "yaxis": f"y{axis}", "visible": True,
        "z": matrices[:, -1],
        "x": np.arange(1, tasks + 1), "text": [[_plain(group.label)] * tasks for group in rows],
        "colorscale": "Cividis", "zmin": min(lowest, 90), "zmax": 100, "xgap": 1, "ygap": 1,
        "texttemplate": "%{z:.0f}", "showscale": False, "hoverongaps": False,
        "hovertemplate": "%{text}<br>on task %{x}: %{z:.1f} %<extra></extra>",
    }  # fmt: skip
    steps = [
        {"method": "restyle", "args": [{"z": [matrices[:, i]]}, [place]], "label": str(i + 1)}
        for i in range(tasks)
    ]
    current = {"prefix": "after task ", "font": {"size": 12}}
    return heat, {"steps": steps, "active": tasks - 1, "currentvalue": current}


def _step_sizes(looks: Sequence[tuple[Group, "_Look"]], axes: Mapping[str, str]) -> list[Json]:
    traces = []
    for group, look in looks:
        quantiles = {} if group.steps is None else group.steps.quantiles
        for name, (low, first, median, third, high) in quantiles.items():
            assert group.steps is not None
            step, axis = group.steps.step, f"y{axes[name]}"
            traces += [
                _band(step, low, high, 0.12, look, axis),
                _band(step, first, third, 0.25, look, axis),
                {**look.line(axis), "x": step, "y": median, "mode": "lines",
                 "customdata": np.stack([low, first, third, high], axis=1),
                 "hovertemplate":
                     "up to step %{x}: median %{y:.3g}<br>half of the windows "
                     "%{customdata[1]:.3g} to %{customdata[2]:.3g}<br>90 % of them "
                     "%{customdata[0]:.3g} to %{customdata[3]:.3g}"},
            ]  # fmt: skip
    return traces


class _Look(NamedTuple):
    """How a group is drawn, and whether it is when the page opens."""

    label: str
    color: str
    symbol: str
    dash: str
    visible: bool | str

    def line(self, yaxis: str) -> Json:
        """Attributes shared by the lines of a group; a click in the legend acts on all of them."""
        return {
            "type": "scatter", "name": _plain(self.label), "legendgroup": self.label,
            "line": {"color": self.color, "dash": self.dash}, "visible": self.visible,
            "showlegend": False, "xaxis": f"x{yaxis[1:]}", "yaxis": yaxis,
        }  # fmt: skip


def _looks(groups: Sequence[Group]) -> list[tuple[Group, _Look]]:
    """A method has its colour and symbol, and its settings differ in their dashes."""
    best = best_of_methods(groups)
    drawn = [group for group in best if not group.joint][:_DRAWN]
    drawn += [group for group in best if group.joint][:1]
    methods: dict[str, int] = {}
    places: Counter[str] = Counter()
    looks = []
    for group in groups:
        number = methods.setdefault(group.method, len(methods))
        dash = _DASHES[places[group.method] % len(_DASHES)]
        places[group.method] += 1
        color, symbol = COLORS[number % len(COLORS)], _SYMBOLS[number % len(_SYMBOLS)]
        visible = True if group in drawn else "legendonly"
        looks.append((group, _Look(group.label, color, symbol, dash, visible)))
    return looks


def _band(x: Any, low: Any, high: Any, alpha: float, look: _Look, yaxis: str) -> Json:
    """The area between two lines, where both are known."""
    known = np.isfinite(low) & np.isfinite(high)
    red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
    return {
        **look.line(yaxis), "mode": "lines", "fill": "toself", "hoverinfo": "skip",
        "x": np.concatenate([x[known], x[known][::-1]]),
        "y": np.concatenate([high[known], low[known][::-1]]),
        "fillcolor": f"rgba({red},{green},{blue},{alpha})", "line": {"width": 0},
    }  # fmt: skip


def _plain(text: str) -> str:
    return html.escape(text, quote=False)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
