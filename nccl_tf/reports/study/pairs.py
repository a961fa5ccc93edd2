"""Systems of a study compared in pairs by seed: which are better, which are worse."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from nccl_tf.experiment.study.plan import Plan
from nccl_tf.reports.study.results import Result
from nccl_tf.reports.table import markdown_table

_ABOUT = (
    "Two systems are compared in pairs by seed: the row's averaged accuracy less that of the "
    "system in the heading, in points, and averaged forgetting likewise, each ± one standard error "
    "(of the weights as they are where one has no averaged ones). A system is better if neither "
    "figure is worse by more than one standard error and one of them is better by more than two, "
    "worse if the other one is better, and else level. With three seeds (marked *) a standard "
    "error is itself uncertain by half. Of two systems that do not differ one is called better in "
    "up to 3 of 10 pairs with three seeds, in up to 2 of 10 with five (normal figures, whatever "
    "their correlation)."
)
_FEW = 3


@dataclass(frozen=True)
class Pair:
    """A system beside another in one setting.

    Args:
        accuracy: Accuracy of the first less that of the second, a fraction.
        accuracy_error: Its standard error.
        forgetting: Forgetting of the first less that of the second.
        forgetting_error: Its standard error.
        seeds: How many both have.
    """

    accuracy: float
    accuracy_error: float
    forgetting: float
    forgetting_error: float
    seeds: int

    @property
    def verdict(self) -> str:
        """`better`, `worse` or `level`, with an asterisk where seeds are few."""
        gains = (
            (self.accuracy, self.accuracy_error), (-self.forgetting, self.forgetting_error),
        )  # fmt: skip
        mark = "*" if self.seeds <= _FEW else ""
        if _is_better(gains):
            return f"better{mark}"
        lost = _is_better([(-gain, error) for gain, error in gains])
        return f"worse{mark}" if lost else f"level{mark}"


def _is_better(gains: Sequence[tuple[float, float]]) -> bool:
    return all(gain >= -error for gain, error in gains) and any(
        gain > 2 * error for gain, error in gains
    )


def compare(first: Result, second: Result) -> Pair | None:
    """Two systems in one setting; None with fewer than two seeds that both have run."""
    kind = "averaged_" if first.averaged and second.averaged else ""
    others = {record["seed"]: record for record in second.records}
    pairs = [(row, others[row["seed"]]) for row in first.records if row["seed"] in others]
    if len(pairs) < 2:
        return None
    gains = []
    for name in (f"{kind}average_accuracy", f"{kind}forgetting"):
        differences = [a[name] - b[name] for a, b in pairs if None not in (a[name], b[name])]
        if len(differences) < len(pairs):
            return None
        error = np.std(differences, ddof=1) / math.sqrt(len(pairs))
        gains.append((float(np.mean(differences)), float(error)))
    return Pair(*gains[0], *gains[1], len(pairs))


def pair_sections(plan: Plan, results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """The parts of a page, for each system that others are compared with.

    Args:
        plan: The plan, which names them.
        results: Of each setting by its name.
    """
    if plan.compared_with:
        yield "## In pairs"
        yield textwrap.fill(_ABOUT, 100)
    for name in plan.compared_with:
        pairs = {
            (setting.name, row.cell.system.name): pair
            for setting in plan.settings
            for other in results[setting.name]
            if other.cell.system.name == name
            for row in results[setting.name]
            if row is not other and (pair := compare(row, other))
        }
        titles = {row.cell.system.name: row.title for rows in results.values() for row in rows}
        settings = [s for s in plan.settings if any(key[0] == s.name for key in pairs)]
        rows = [
            [titles[system.name], *(pair_text(pairs.get((s.name, system.name))) for s in settings)]
            for system in plan.systems
            if any(key[1] == system.name for key in pairs)
        ]
        yield f"### Beside {titles[name]}"
        yield markdown_table(("system", *(s.title for s in settings)), rows) if rows else "No runs."


def pair_text(pair: Pair | None) -> str:
    """The verdict and both differences, "-" where there is no pair."""
    if pair is None:
        return "-"
    # A zero has no minus.
    accuracy, forgetting = round(100 * pair.accuracy, 1) + 0.0, round(pair.forgetting, 3) + 0.0
    return (
        f"{pair.verdict}: {accuracy:+.1f} ± {100 * pair.accuracy_error:.1f}, "
        f"{forgetting:+.3f} ± {pair.forgetting_error:.3f}"
    )
