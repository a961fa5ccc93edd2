"""How time and memory grow: with slots, tasks, width and batch, and evaluation with tasks.

python -m benchmarks.growth              # the table of what was measured
python -m benchmarks.growth --measure=slots,tasks,width,batch,evaluation
                                         # measures these again, and keeps them in growth.json
python -m benchmarks.growth --figure_dir=docs/images    # draws what was measured

A point is a process of its own, on one thread: processor time, the least of five rounds, and the
most memory that the process held beyond what TensorFlow takes for a network of one neuron.
"""

import argparse
import json
import math
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from nccl_tf.reports.figures.style import new_figure, numbered_style, style

FILE = Path(__file__).with_name("growth.json")
Point = dict[str, float]


class Axis(NamedTuple):
    """What is let grow.

    Attributes:
        values: Where it is measured.
        curves: What is measured there.
        label: Of the axis.
        what: What takes the time.
    """

    values: tuple[int, ...]
    curves: tuple[str, ...]
    label: str
    what: str = "a step"


AXES = {
    "slots": Axis((100, 1_000, 10_000, 100_000, 1_000_000), ("ER", "NCCL"), "slots"),
    "tasks": Axis((5, 20, 50, 100, 200), ("ER", "NCCL", "GEM"), "tasks"),
    "width": Axis((64, 256, 1_024, 4_096), ("NCCL",), "units of a hidden layer"),
    "batch": Axis((10, 32, 128, 512, 1_024), ("NCCL",), "examples of each batch"),
    "evaluation": Axis((5, 20, 50, 100, 200), ("all", "new"), "tasks", "the accuracy matrix"),
}


def exponent(values: Sequence[float], measured: Sequence[float]) -> float:
    """The p of c x^p that is nearest to the measured numbers on logarithmic axes."""
    return float(np.polyfit(np.log(values), np.log(measured), 1)[0])


def measure(names: Sequence[str]) -> None:
    """Measure axes again; what is kept of the others stays."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {"points": {}}
    for name in names:
        axis = AXES[name]
        kept["points"][name] = {
            curve: [_point(name, curve, value) for value in axis.values] for curve in axis.curves
        }
        kept["processor"] = _processor()
        FILE.write_text(json.dumps(kept, indent=1) + "\n")


def _point(axis: str, curve: str, value: int) -> Point:
    command = [sys.executable, "-m", "benchmarks.growth_point", axis, curve, str(value)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    point = json.loads(done.stdout.splitlines()[-1])
    print(axis, curve, value, point, file=sys.stderr)
    return point


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def table(kept: dict[str, Any]) -> str:
    """What was measured, and the exponents: of all points, and of the last two alone."""
    lines = [f"{'':<40}{'time':>14}{'memory':>14}"]
    for name, axis in AXES.items():
        for curve, points in kept["points"][name].items():
            rows = [
                (
                    f"{value:,}",
                    f"{point['milliseconds']:,.2f} ms",
                    f"{point['bytes'] / 2**20:,.0f} MiB",
                )
                for value, point in zip(axis.values, points, strict=True)
            ]
            for what, last in (("exponent, all", 0), ("exponent, last two", -2)):
                powers = [
                    exponent(axis.values[last:], [point[key] for point in points[last:]])
                    for key in ("milliseconds", "bytes")
                ]
                rows.append((what, *(f"{round(power, 2) + 0.0:.2f}" for power in powers)))
            lines += [f"{name:<12}{curve:<8}{a:>20}{b:>14}{c:>14}" for a, b, c in rows]
    return "\n".join(lines)


def figure(name: str, kept: dict[str, Any]) -> Figure:
    """Time and memory along one axis, both on logarithmic axes, with the fitted exponents."""
    axis = AXES[name]
    with style():
        result = new_figure((7.0, 2.9))
        panels = result.subplots(1, 2)
        rows = ("milliseconds", 1.0, f"ms of {axis.what}"), ("bytes", 2.0**-20, "MiB, peak")
        for panel, (key, unit, label) in zip(panels, rows, strict=True):
            for place, (curve, points) in enumerate(kept["points"][name].items()):
                measured = [unit * point[key] for point in points]
                power = exponent(axis.values, measured)
                legend = f"{curve}, exponent {power:.2f}"
                panel.plot(axis.values, measured, label=legend, **numbered_style(place + 3))
            panel.set(xscale="log", yscale="log", xlabel=axis.label, ylabel=label)
            low, high = panel.get_ylim()
            # What does not grow is a flat line, and no noise that fills the panel.
            if high < 10 * low:
                middle = math.sqrt(low * high)
                panel.set_ylim(middle / math.sqrt(10), middle * math.sqrt(10))
            panel.set_xticks(axis.values, [f"{value:g}" for value in axis.values])
            subs = (1, 2, 5) if high < 30 * low else (1,)
            panel.yaxis.set_major_locator(LogLocator(subs=subs))
            panel.yaxis.set_major_formatter("{x:g}")
            for each in (panel.xaxis, panel.yaxis):
                each.set_minor_formatter(NullFormatter())
            panel.legend(frameon=False)
    return result


def main() -> None:
    """Print, measure or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", type=lambda text: text.split(","), default=[])
    parser.add_argument("--figure_dir", type=Path)
    asked = parser.parse_args()
    measure(asked.measure)
    kept = json.loads(FILE.read_text())
    if asked.figure_dir is None:
        print(table(kept))
        return
    for name in AXES:
        figure(name, kept).savefig(asked.figure_dir / f"growth_{name}.png")


if __name__ == "__main__":
    main()
