"""The plotly figure of the page; a menu chooses the stream.

Plotly takes tags and entities in a text for its own: every text of a record is escaped before.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nccl_tf.reports.figures.style import COLORS
from nccl_tf.reports.page.groups import STEP_SIZES, Budget, Group, best_of_methods, usual_budget
from nccl_tf.reports.records import mean_std

Json = dict[str, Any]

_DRAWN = 6
"""Methods whose best settings have a line when the page opens, besides joint training."""
_MOST_LINES, _MOST_ROWS = 100, 40
"""Settings of a stream that the curves, and the matrix, have; more take long to draw."""
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_DASHES = ("solid", "dash", "dot", "dashdot")
_LONGEST, _PALE = 40, 0.25
"""Characters of a row's name; opacity of points that are no fair comparison."""
_LEGEND, _LINE, _GAP, _ROW = 150, 25, 110, 22
"""Pixels: of the legend at most, of a line of it, between two panels, of a row of the matrix."""


def runs_figure(streams: Mapping[str, Sequence[Group]]) -> Json:
    """Curves, accuracy against forgetting, step sizes and accuracy matrix, as plotly's JSON.

    The legend and the slider act on the stream that the menu chooses: at first the largest one.

    Args:
        streams: The groups of each stream by its title, the best first; one stream or more.
    """
    from plotly.subplots import make_subplots

    rows = max(len(_rows(groups)) for groups in streams.values())
    # By the first letter of its axes: the matrix is the last panel, above the slider.
    panels = {
        "y": ("Accuracy over the tasks so far", "", "accuracy (%)", 340),
        "y2": ("Accuracy against forgetting", "forgetting", "average accuracy (%)", 340),
    }
    axes = {}
    for name, title in STEP_SIZES.items():
        if any(name in group.steps for groups in streams.values() for group in groups):
            axes[name] = f"y{len(panels) + 1}"
            panels[axes[name]] = (title, "training step", "", 170)
    axes["matrix"] = f"y{len(panels) + 1}"
    panels[axes["matrix"]] = ("", "<b>Accuracy matrix, row by row</b>: on task", "", _ROW * rows)
    heights = [height for *_, height in panels.values()]
    total = sum(heights) + _GAP * (len(panels) - 1)
    # Some three names fit into a line of the legend.
    legend = min(_LEGEND, _LINE * -(-max(map(len, streams.values())) // 3))
    layout = make_subplots(
        len(panels), 1, row_heights=heights, vertical_spacing=_GAP / total,
        subplot_titles=[f"<b>{title}</b>" for title, *_ in panels.values() if title],
    ).to_plotly_json()["layout"]  # fmt: skip
    for axis, (_, under, beside, _) in panels.items():
        layout[f"xaxis{axis[1:]}"]["title"] = {"text": under}
        layout[f"yaxis{axis[1:]}"] |= {"title": {"text": beside}, "exponentformat": "power"}
    last = axes["matrix"][1:]
    layout[f"xaxis{last}"] |= {"side": "top", "showgrid": False}
    layout[f"yaxis{last}"] |= {
        "range": [rows - 0.5, -0.5], "showgrid": False, "tickfont": {"size": 10}, "automargin": True
    }  # fmt: skip
    drawn: list[tuple[list[Json], Json]] = []
    for groups in streams.values():
        drawn.append(_stream(groups, axes, first=sum(len(traces) for traces, _ in drawn)))
    buttons: list[Json] = []
    for chosen, (title, (_, of_stream)) in enumerate(zip(streams, drawn, strict=True)):
        visible = [
            number == chosen and trace["visible"]
            for number, (traces, _) in enumerate(drawn)
            for trace in traces
        ]
        args = [{"visible": visible}, of_stream]
        buttons.append({"label": html.escape(title, False), "method": "update", "args": args})
    largest = int(np.argmax([len(groups) for groups in streams.values()]))
    for name, value in drawn[largest][1].items():
        part, _, key = name.partition(".")
        layout[part] = {**layout[part], key: value} if key else value
    traces = [trace for traces, _ in drawn for trace in traces]
    shown = zip(traces, buttons[largest]["args"][0]["visible"], strict=True)
    layout |= {
        "font": {"size": 12}, "height": total + legend + 200, "hovermode": "closest",
        "margin": {"l": 60, "r": 20, "t": legend + 90, "b": 110},
        "hoverlabel": {"namelength": -1, "align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1 + 35 / total, "yanchor": "bottom",
                   "maxheight": legend},
        "updatemenus": [
            {"buttons": buttons, "active": largest, "visible": len(streams) > 1,
             "x": 0, "xanchor": "left", "y": 1 + (legend + 45) / total, "yanchor": "bottom",
             "font": {"size": 11}},
        ],
    }  # fmt: skip
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
        axes: The y axis of the matrix and of each step size.
        first: Number of its first trace in the figure.
    """
    best, rows, usual = best_of_methods(groups), _rows(groups), usual_budget(groups)
    looks = _looks(groups, usual)
    matrix, slider = _matrix(rows, axes["matrix"], first)
    traces = [matrix, *_points(looks, usual)]
    for place, (group, look) in enumerate(looks):
        if place < _MOST_LINES or group in best:
            mean, std = group.curve()
            hover = "after task %{x}: %{y:.1f} ± %{customdata:.1f} %"
            tasks = np.arange(1, len(mean) + 1)
            traces += _line(look, "y", tasks, mean, mean - std, mean + std, std, hover)
        for name, (step, low, median, high) in group.steps.items():
            ends = np.stack([low, high], axis=1)
            hover = (
                "up to step %{x}: median %{y:.3g}<br>90 % of the windows "
                "%{customdata[0]:.3g} to %{customdata[1]:.3g}"
            )
            traces += _line(look, axes[name], step, median, low, high, ends, hover)
    ticks = 1 if len(matrix["x"]) <= 10 else 5
    last = axes["matrix"][1:]
    return traces, {
        "sliders": [slider], "xaxis.dtick": ticks, f"xaxis{last}.dtick": ticks,
        "xaxis.title": {"text": f"tasks trained; at first: {_in_words(usual)}"},
        f"yaxis{last}.tickvals": list(range(len(rows))),
        f"yaxis{last}.ticktext": [html.escape(_short(group), False) for group in rows],
    }  # fmt: skip


def _in_words(budget: Budget) -> str:
    memory = "no memory" if budget.memory is None else f"a memory of {budget.memory}"
    passes = "one pass" if budget.epochs == 1 else f"{budget.epochs} passes"
    return f"{memory}, batches of {budget.batch_size}, {passes}"


def _short(group: Group) -> str:
    """The label; of a long one the beginning, and the hash of the settings, which differs."""
    if len(group.label) <= _LONGEST:
        return group.label
    return f"{group.label[: _LONGEST - 10]}… {group.records[0]['settings_hash'][:8]}"


class _Look(NamedTuple):
    """The appearance of a group, and whether it is drawn when the page opens."""

    label: str
    color: str
    symbol: str
    dash: str
    visible: bool | str


def _looks(groups: Sequence[Group], usual: Budget) -> list[tuple[Group, _Look]]:
    """A method has its colour and symbol, and its settings differ in their dashes.

    Args:
        groups: Of a stream, the best first.
        usual: The budget of those that are drawn when the page opens.
    """
    best = best_of_methods([group for group in groups if group.is_comparable(usual)])
    drawn = [group for group in best if not group.joint][:_DRAWN]
    drawn += [group for group in best if group.joint][:1]
    methods: dict[str, int] = {}
    places: Counter[str] = Counter()
    looks = []
    for group in groups:
        number = methods.setdefault(group.method, len(methods))
        dash = _DASHES[places[group.method] % len(_DASHES)]
        places[group.method] += 1
        # Those of one colour have other symbols.
        color = COLORS[number % len(COLORS)]
        symbol = _SYMBOLS[(number + number // len(COLORS)) % len(_SYMBOLS)]
        visible = True if group in drawn else "legendonly"
        looks.append((group, _Look(group.label, color, symbol, dash, visible)))
    return looks


def _line(
    look: _Look, axis: str, x: Any, y: Any, low: Any, high: Any, customdata: Any, hover: str
) -> list[Json]:
    """A line and the band around it; a click in the legend acts on all of a group."""
    known = np.isfinite(low) & np.isfinite(high)
    red, green, blue = (int(look.color[i : i + 2], 16) for i in (1, 3, 5))
    shared = {
        "type": "scatter", "name": html.escape(look.label, False), "legendgroup": look.label,
        "visible": look.visible, "xaxis": f"x{axis[1:]}", "yaxis": axis,
    }  # fmt: skip
    return [
        {**shared, "mode": "lines", "fill": "toself", "hoverinfo": "skip", "showlegend": False,
         "x": np.concatenate([x[known], x[known][::-1]]),
         "y": np.concatenate([high[known], low[known][::-1]]),
         "fillcolor": f"rgba({red},{green},{blue},0.15)", "line": {"width": 0}},
        {**shared, "x": x, "y": y, "customdata": customdata, "connectgaps": True,
         "showlegend": axis == "y", "mode": "lines+markers" if axis == "y" else "lines",
         "line": {"color": look.color, "dash": look.dash},
         "marker": {"symbol": look.symbol, "size": 7}, "hovertemplate": hover},
    ]  # fmt: skip


def _points(looks: Sequence[tuple[Group, _Look]], usual: Budget) -> list[Json]:
    """A point for each group that has a forgetting, pale where it has another budget."""
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
         "text": [html.escape(group.label, False) for group, _ in known],
         "marker": {"color": [look.color for _, look in known], "size": 9,
                    "opacity": [1 if g.is_comparable(usual) else _PALE for g, _ in known],
                    "symbol": [look.symbol for _, look in known]},
         "hovertemplate": "%{text}<br>accuracy %{y:.1f} %, forgetting %{x:.3f}<extra></extra>"}
    ]  # fmt: skip


def _matrix(rows: Sequence[Group], axis: str, place: int) -> tuple[Json, Json]:
    """The trace number `place` of the mean matrices, and its slider."""
    matrices = np.stack([group.matrices().mean(0) for group in rows])
    tasks = matrices.shape[-1]
    matrices[:, ~np.tri(tasks, dtype=bool)] = np.nan  # Of tasks that are not trained yet.
    lowest = np.floor(np.nanmin(matrices) / 10) * 10
    matrix = {
        "type": "heatmap", "xaxis": f"x{axis[1:]}", "yaxis": axis, "visible": True,
        "x": np.arange(1, tasks + 1), "z": matrices[:, -1],
        "text": [[html.escape(group.label, False)] * tasks for group in rows],
        "colorscale": "Cividis", "zmin": min(lowest, 90), "zmax": 100, "xgap": 1, "ygap": 1,
        "texttemplate": "%{z:.0f}", "showscale": False, "hoverongaps": False,
        "hovertemplate": "%{text}<br>on task %{x}: %{z:.1f} %<extra></extra>",
    }  # fmt: skip
    steps = [
        {"method": "restyle", "args": [{"z": [matrices[:, i]]}, [place]], "label": str(i + 1)}
        for i in range(tasks)
    ]
    current = {"prefix": "after task ", "font": {"size": 12}}
    return matrix, {"steps": steps, "active": tasks - 1, "currentvalue": current}
