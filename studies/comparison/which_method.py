"""The table of docs/which_method.md: what a method needs and costs, and what it reached."""

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_tf.learner.core import Core
from nccl_tf.learner.learner import Learner
from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.row import Method
from nccl_tf.records.record import Record
from nccl_tf.reports.table import markdown_table, mean_std
from studies.comparison.step_costs import read_costs
from studies.study import Result

_TITLES = ("Permuted MNIST, 1,000 slots", "Split MNIST, single head, 500 slots")
"""How the titles of the settings begin that the table shows: those of dense networks, as is the one
whose step is timed."""
SOLVES = ("slda",)
"""Methods that solve where a task ends what a prediction solves otherwise."""


def asks_for_tasks(method: Method) -> bool:
    """Whether it learns where a task ends, reads examples of ended tasks alone, or joins tasks."""
    bases = [cls for cls in method.learner_class().__mro__ if cls not in (Learner, Core)]
    learns = method.name not in SOLVES and any("on_task_end" in vars(cls) for cls in bases)
    memory = method.memory or ""
    return learns or method.joins or memory in ("ring", "exemplars") or memory.startswith("past")


def of_seeds(
    records: Sequence[Record], metric: str, scale: float, digits: int, spread: bool = True
) -> str:
    """The mean of a metric, with its deviation, or that it is of one seed.

    Args:
        records: One or more.
        metric: Its name.
        scale: A factor.
        digits: After the point.
        spread: Whether the deviation is shown.
    """
    shown = mean_std(records, metric, scale, digits)
    shown = shown if spread else shown.partition(" ")[0]
    return f"{shown} (one seed)" if len(records) == 1 and shown != "-" else shown


def table(results: Mapping[str, Sequence[Result]]) -> str:
    """A row for each method that learns task after task, those of the comparison first.

    Args:
        results: Of each setting of the comparison, by its title.
    """
    reached: dict[str, dict[str, str]] = {}
    for title, rows in results.items():
        for row in rows:
            if row.records:
                name = row.cell.system["flags"]["method"]
                accuracy = of_seeds(row.records, "average_accuracy", 100, 1, spread=False)
                reached.setdefault(name, {})[title] = accuracy
    titles = [title for title in results if any(title in found for found in reached.values())]
    titles = [title for title in titles if title.startswith(_TITLES)]
    costs, _ = read_costs()
    lines: list[list[Any]] = []
    for method in METHODS.values():
        if method.joint:
            continue
        found = reached.get(method.name, {})
        lines.append([
            f"{method.title} (`{method.name}`)",
            method.memory or "-",
            "yes" if asks_for_tasks(method) else "no",
            method.passes or "-",
            f"{costs[method.name]:.1f}" if method.name in costs else "-",
            *(found.get(title, "-") for title in titles),
        ])  # fmt: skip
    lines.sort(key=lambda row: sum(cell == "-" for cell in row[5:]))
    measured = [f"{title}, measured with one pass" for title in titles]
    names = ("method", "memory", "asks for tasks", "passes besides", "time of a step", *measured)
    return markdown_table(names, lines, names[4:])
