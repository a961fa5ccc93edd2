"""The look of pictures: sizes, and colours that differ without colour vision too."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nccl_tf.methods.registry import METHODS
from nccl_tf.whole_files import replaced

MATRIX_COLORS = "cividis"
MEAN_COLOR = "black"
REFERENCE_COLOR = "0.35"
PAPER_WIDTH = 6.75
"""Inches across both columns of a paper; one of them has 3.25."""
PAPER_DPI = 200

# Okabe and Ito's colours, which differ without colour vision; yellow is too pale for lines.
COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7")
_MARKERS = "osD^vPX*<>"
_TASK_MARKERS = 7
"""Has no divisor in common with the number of colours."""
_COMMON = (
    "finetune", "agem", "er_ring", "er_reservoir", "nccl_ring", "nccl_reservoir"
)  # fmt: skip

_RC = {
    "font.size": 9,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
    "svg.hashsalt": "nccl_tf",
    "pdf.fonttype": 42,  # Letters as outlines, which journals take.
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
    """Settings of matplotlib while a picture is drawn, whose texts are names and no mathematics."""
    with mpl.rc_context({**_RC, "text.parse_math": False}):
        yield


@contextmanager
def paper_style() -> Iterator[None]:
    """Settings of matplotlib while a picture for a page of a paper is drawn."""
    with mpl.rc_context(_PAPER_RC):
        yield


def save(figure: Figure, folder: Path, name: str, dpi: int = PAPER_DPI) -> list[Path]:
    """Write a picture as PNG and, for print, as PDF, the same bytes every time.

    Args:
        figure: The picture, in whose style this is called.
        folder: Of the files; it is made where it is missing.
        name: Of the files, without their ends.
        dpi: Dots an inch of the PNG.

    Raises:
        OSError: A file cannot be written; an earlier one is as it was then.
    """
    png, pdf = (folder / f"{name}.{kind}" for kind in ("png", "pdf"))
    folder.mkdir(parents=True, exist_ok=True)
    with replaced(png) as temporary:
        figure.savefig(temporary, format="png", dpi=dpi)
    with replaced(pdf) as temporary:
        figure.savefig(temporary, format="pdf", metadata={"CreationDate": None})
    return [png, pdf]


def new_figure(size: tuple[float, float]) -> Figure:
    """An empty picture of (width, height) in inches that no window shows."""
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def method_style(name: str) -> dict[str, str]:
    """Colour and marker of a method, the same in every picture; the paper's six differ in both."""
    order = [*_COMMON, *(method for method in METHODS if method not in _COMMON)]
    return numbered_style(order.index(name) if name in order else 0)


def task_style(task: int) -> dict[str, str]:
    """Colour and marker of a task, from 0: neighbours differ in both, and 42 tasks in one.

    None is black, which the mean has.
    """
    colors = COLORS[1:]
    return {"color": colors[task % len(colors)], "marker": _MARKERS[task % _TASK_MARKERS]}


def numbered_style(place: int) -> dict[str, str]:
    """Colour and marker number `place`; the first 70 differ in one of the two."""
    return {
        "color": COLORS[place % len(COLORS)],
        "marker": _MARKERS[place % len(_MARKERS)],
    }
