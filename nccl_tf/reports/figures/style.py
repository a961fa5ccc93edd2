"""The look of pictures: sizes, and colours that differ without colour vision too."""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nccl_tf.methods.registry import METHODS

MATRIX_COLORS = "cividis"
MEAN_COLOR = "black"
REFERENCE_COLOR = "#d00000"
PAPER_WIDTH = 7.0
"""Inches across both columns of a paper."""

# Okabe and Ito's colours, which differ without colour vision; yellow is too pale for lines.
_COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
_MARKERS = "osD^vPX*<>"
_COMMON = (
    "finetune", "agem", "er_ring", "er_reservoir", "nccl_ring", "nccl_reservoir"
)  # fmt: skip

_RC = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
    "svg.hashsalt": "nccl_tf",
}
_PAPER_RC = {
    **_RC,
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
}


@contextmanager
def style() -> Iterator[None]:
    """Settings of matplotlib while a picture is drawn."""
    with mpl.rc_context(_RC):
        yield


def task_colors(count: int) -> np.ndarray:
    """A colour for each task, RGBA [count, 4], from dark to light, none too pale for white."""
    return colormaps["viridis"](np.linspace(0.0, 0.9, count))


@contextmanager
def paper_style() -> Iterator[None]:
    """Settings of matplotlib while a picture for a page of a paper is drawn."""
    with mpl.rc_context(_PAPER_RC):
        yield


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty picture of (width, height) in inches that no window shows."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def method_style(name: str) -> dict[str, str]:
    """Colour and marker of a method, the same in every picture; the paper's six differ in both."""
    order = [*_COMMON, *(method for method in METHODS if method not in _COMMON)]
    return numbered_style(order.index(name) if name in order else 0)


def numbered_style(place: int) -> dict[str, str]:
    """Colour and marker number `place`; the first 70 differ in one of the two."""
    return {
        "color": _COLORS[place % len(_COLORS)],
        "marker": _MARKERS[place % len(_MARKERS)],
    }
