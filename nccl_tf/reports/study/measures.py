"""What the runs of a study that have diagnostics measured of the paper's quantities."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nccl_tf.experiment.study.plan import Plan
from nccl_tf.reports.study.results import Result
from nccl_tf.reports.table import markdown_table

_NUMBERS = (
    "sum of Γ", "|B|", "|e| / |F|", "|u f| / |F|", "u", "largest u", "earlier loss",
    "loss of all", "bound broken", "seeds",
)  # fmt: skip
_ABOUT = r"""
With $u = \alpha_H / \alpha$, the weight of the memory gradient $f_I$ (f in the table): the sum of
$\Gamma$ over the run, and means over the ends of tasks and ten memories drawn at each. $\lvert B_t
\rvert$ is the term of the memory's overfitting and $e = f_I - F$ the error of the memory gradient.
The losses are those of training examples at the end of the run, of the tasks before the last one
and of all; a bound is broken at the end of a task where $\lvert F \rvert^2$ is above the step
bound ([theory](theory.md)).
"""


def measures_sections(plan: Plan, results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """The parts of a page: a table for each setting with runs that measured.

    Args:
        plan: The plan.
        results: Of each setting by its name.
    """
    tables = {
        setting.title: [row for result in results[setting.name] if (row := _row(result))]
        for setting in plan.settings
    }
    if any(tables.values()):
        yield "## What the paper's quantities say"
        yield textwrap.fill(_ABOUT.strip(), 100)
    for title, rows in tables.items():
        if rows:
            yield f"### {title}"
            yield markdown_table(("system", *_NUMBERS), rows, _NUMBERS)


def _row(result: Result) -> list[str]:
    """The cells of a system; none where no run has measured a memory."""
    measured = [r["diagnostics"]["tasks"] for r in result.records if "diagnostics" in r]
    # Of joint training, and of one task, there is nothing to draw from at the end.
    runs = [rows for rows in measured if any(end["draws"] for end in rows)]
    if not runs:
        return []
    ends = [end for rows in runs for end in rows if end["draws"]]
    full = np.array([[end["previous"]["gradient_norm"]] for end in ends])
    sizes, errors = _drawn(ends, "alpha_h"), _drawn(ends, "error_squared")
    weights = sizes / np.array([[end["alpha"]] for end in ends])
    # B is affine in L, with the slope alpha_H^2 <F, e>, and |f_I|^2 = |F|^2 + 2 <F, e> + |e|^2.
    along = _drawn(ends, "overfitting_slope") / np.where(sizes > 0, sizes, 1.0) ** 2
    lengths = weights * np.sqrt(np.maximum(full**2 + 2 * along + errors, 0.0))
    bounds = [
        (end["previous"]["gradient_norm"] ** 2, end["step_bound"])
        for end in ends
        if end["step_bound"] is not None
    ]
    broken = sum(squared > bound for squared, bound in bounds)
    last = [rows[-1] for rows in runs]
    return [
        result.title,
        f"{np.mean([end['gamma_surrogate'] for end in last]):.1f}",
        f"{np.abs(_drawn(ends, 'overfitting')).mean():.3f}",
        f"{(np.sqrt(errors) / full).mean():.1f}",
        f"{(lengths / full).mean():.1f}",
        f"{weights.mean():.2f}",
        f"{weights.max():.2f}",
        f"{np.mean([end['previous']['loss'] for end in last]):.3f}",
        f"{np.mean([end['seen']['loss'] for end in last]):.3f}",
        f"{broken} of {len(bounds)}",
        str(len(runs)),
    ]


def _drawn(ends: Sequence[Mapping[str, Any]], name: str) -> npt.NDArray[np.float64]:
    """[ends of tasks, draws]."""
    return np.array([end["draws"][name] for end in ends])
