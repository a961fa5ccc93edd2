"""How pictures look: one set of sizes and colours, told apart without colour vision too."""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl
import numpy as np
from matplotlib import colormaps

MATRIX_COLORS = "cividis"
MEAN_COLOR = "black"

_RC = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.dpi": 100,
}


@contextmanager
def style() -> Iterator[None]:
    """Settings of matplotlib while a picture is drawn."""
    with mpl.rc_context(_RC):
        yield


def task_colors(count: int) -> np.ndarray:
    """A colour for each task, RGBA [count, 4], from dark to light, none too pale for white."""
    return colormaps["viridis"](np.linspace(0.0, 0.9, count))
