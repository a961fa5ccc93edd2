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
_TITLES = {
    "": "Accuracy over the tasks so far",
    "2": "Accuracy against forgetting",
    "3": "Accuracy matrix, row by row",
    "4": "Λ, inner product of the gradients",
    "5": "α<sub>H</sub>, step of the memory gradient",
    "6": "β<sub>H</sub>, step of the stream gradient",
}
"""Of each panel, by the end of the names of its axes."""
_STEPS = {"lambda": "4", "alpha_h": "5", "beta_h": "6"}
_LEGEND, _SLIDER, _TOP, _BOTTOM = 150, 90, 90, 50
"""Pixels."""


def runs_figure(streams: Mapping[str, Sequence[Group]]) -> Json:
    """Curves, accuracy against forgetting, accuracy matrix and step sizes, as plotly's JSON.

    The legend and the slider act on the stream that the menu chooses: at first the largest one.

    Args:
        streams: The groups of each stream by its title, the best first; one stream or more.
    """
    drawn: list[tuple[list[Json], Json]] = []
    for groups in streams.values():
        drawn.append(_stream(groups, first=sum(len(traces) for traces, _ in drawn)))
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
    traces = [trace for traces, _ in drawn for trace in traces]
    shown = zip(traces, buttons[chosen]["args"][0]["visible"], strict=True)
    menu: Json = {
        "buttons": buttons, "active": chosen, "x": 0, "xanchor": "left", "y": 1, "pad": {"b": 40},
        "yanchor": "bottom", "font": {"size": 11}, "visible": len(streams) > 1,
    }  # fmt: skip
    scale = [
        {"label": label, "method": "relayout",
         "args": [{f"yaxis{axis}.type": kind for axis in _STEPS.values()}]}
        for label, kind in (("linear", "linear"), ("logarithmic", "log"))
    ]  # fmt: skip
    scales: Json = {
        "buttons": scale, "type": "buttons", "direction": "left", "x": 1, "xanchor": "right",
        "yanchor": "top", "font": {"size": 10},
    }  # fmt: skip
    layout: Json = {
        "updatemenus": [menu, scales], "font": {"size": 12},
        "margin": {"l": 60, "r": 20, "t": _TOP, "b": _BOTTOM},
        "hoverlabel": {"namelength": -1, "align": "left"}, "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "yanchor": "top", "maxheight": _LEGEND},
        **{f"xaxis{axis}": {"anchor": f"y{axis}", "automargin": True} for axis in _TITLES},
        **{f"yaxis{axis}": {"anchor": f"x{axis}", "automargin": True} for axis in _TITLES},
    }  # fmt: skip
    layout["xaxis"] |= {"title": {"text": "tasks trained"}}
    layout["yaxis"] |= {"title": {"text": "accuracy (%)"}}
    layout["xaxis2"] |= {"title": {"text": "forgetting"}}
    layout["yaxis2"] |= {"title": {"text": "average accuracy (%)"}}
    layout["xaxis3"] |= {"title": {"text": "evaluated on task"}}
    layout["yaxis3"] |= {"autorange": "reversed", "showgrid": False, "tickfont": {"size": 10}}
    for axis in _STEPS.values():
        layout[f"xaxis{axis}"] |= {"title": {"text": "training step"}}
        layout[f"yaxis{axis}"] |= {"exponentformat": "power"}
    for name, value in drawn[chosen][1].items():
        part, _, key = name.partition(".")
        if part == "updatemenus[1]":
            scales[key] = value
        elif key:
            layout[part][key] = value
        else:
            layout[part] = value
    return {"data": [{**trace, "visible": visible} for trace, visible in shown], "layout": layout}


def _stream(groups: Sequence[Group], first: int) -> tuple[list[Json], Json]:
    """The traces of a stream, and the values of the layout that it has for itself.

    Args:
        groups: Of the stream.
        first: Number of its first trace in the figure.
    """
    best = best_of_methods(groups)
    rows = list(groups if len(groups) <= _MOST_ROWS else best)[:_MOST_ROWS]
    lines = [group for i, group in enumerate(groups) if i < _MOST_LINES or group in best]
    heat, slider = _matrix(rows, first)
    traces = [heat, *_curves(lines), *_points(groups), *_step_sizes(groups)]
    used = {trace.get("yaxis", "y")[1:] for trace in traces}
    heights = {"": 340, "2": 340, "3": 22 * len(rows)} | dict.fromkeys(_STEPS.values(), 170)
    # A narrow page has a line of the legend for each group.
    below = {"": min(_LEGEND, 22 * len(lines)) + 60, "3": _SLIDER + 40}
    panels = [axis for axis in _TITLES if axis in used]
    total = sum(heights[axis] + below.get(axis, 0) + 90 for axis in panels) - 90
    layout: Json = {"height": total + _TOP + _BOTTOM, "annotations": []}
    layout["xaxis.dtick"] = layout["xaxis3.dtick"] = 1 if len(heat["x"]) <= 10 else 5
    top = float(total)
    for axis in _TITLES:
        layout[f"xaxis{axis}.visible"] = layout[f"yaxis{axis}.visible"] = axis in used
        layout[f"yaxis{axis}.domain"] = [0, 0.01]
        if axis not in used:
            continue
        bottom = top - heights[axis]
        layout[f"yaxis{axis}.domain"] = [max(bottom, 0) / total, top / total]
        layout["annotations"].append(
            {"text": f"<b>{_TITLES[axis]}</b>", "x": 0, "xref": "paper", "xanchor": "left",
             "y": top / total, "yref": "paper", "yanchor": "bottom", "showarrow": False,
             "yshift": 8}
        )  # fmt: skip
        if axis == "":
            layout["legend.y"] = (bottom - 50) / total
        if axis == "3":
            layout["sliders"] = [slider | {"y": (bottom - 45) / total, "yanchor": "top"}]
            layout["yaxis3.tickvals"] = list(range(len(rows)))
            layout["yaxis3.ticktext"] = [_plain(_short(group.label)) for group in rows]
        if axis == "4":
            layout["updatemenus[1].y"] = (top + 40) / total
        top = bottom - below.get(axis, 0) - 90
    layout["updatemenus[1].visible"] = bool(used & set(_STEPS.values()))
    return traces, layout


def _curves(groups: Sequence[Group]) -> list[Json]:
    traces = []
    for group, look in _looks(groups):
        mean, std = group.curve()
        tasks = np.arange(1, len(mean) + 1)
        traces += [
            _band(tasks, mean - std, mean + std, 0.15, look, "y"),
            {**look.line("y"), "x": tasks, "y": mean, "customdata": std, "mode": "lines+markers",
             "marker": {"symbol": look.symbol, "size": 7}, "connectgaps": True, "showlegend": True,
             "hovertemplate": "after task %{x}: %{y:.1f} ± %{customdata:.1f} %"},
        ]  # fmt: skip
    return traces


def _points(groups: Sequence[Group]) -> list[Json]:
    """A trace for each method."""
    members: dict[str, list[tuple[Group, _Look]]] = {}
    for group, look in _looks(groups):
        if not np.isnan(mean_std(group.records, "forgetting")[0]):
            members.setdefault(group.method, []).append((group, look))
    traces = []
    for pairs in members.values():
        look = pairs[0][1]
        # Rounded, because plotly finds no ticks between numbers that differ in their last bits.
        accuracy, forgetting = (
            np.array([mean_std(group.records, name) for group, _ in pairs]).T.round(8)
            for name in ("average_accuracy", "forgetting")
        )
        bar = {"type": "data", "thickness": 1, "width": 3}
        traces.append(
            {"type": "scatter", "mode": "markers", "xaxis": "x2", "yaxis": "y2", "visible": True,
             "x": forgetting[0], "error_x": bar | {"array": forgetting[1]}, "showlegend": False,
             "y": 100 * accuracy[0], "error_y": bar | {"array": 100 * accuracy[1]},
             "text": [_plain(group.label) for group, _ in pairs],
             "marker": {"color": look.color, "symbol": look.symbol, "size": 9},
             "hovertemplate":
                 "%{text}<br>accuracy %{y:.1f} %, forgetting %{x:.3f}<extra></extra>"}
        )  # fmt: skip
    return traces


def _matrix(rows: Sequence[Group], place: int) -> tuple[Json, Json]:
    """The trace number `place` of the mean matrices, and its slider."""
    matrices = np.stack([group.matrices().mean(0) for group in rows])
    tasks = matrices.shape[-1]
    matrices[:, ~np.tri(tasks, dtype=bool)] = np.nan  # Of tasks that are not trained yet.
    lowest = np.floor(np.nanmin(matrices) / 10) * 10
    heat = {
        "type": "heatmap", "xaxis": "x3", "yaxis": "y3", "visible": True, "z": matrices[:, -1],
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
    return heat, {"steps": steps, "active": tasks - 1, "currentvalue": current, "x": 0, "len": 1}


def _step_sizes(groups: Sequence[Group]) -> list[Json]:
    traces = []
    for group, look in _looks(groups):
        quantiles = {} if group.steps is None else group.steps.quantiles
        for name, (low, first, median, third, high) in quantiles.items():
            assert group.steps is not None
            step, axis = group.steps.step, f"y{_STEPS[name]}"
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
