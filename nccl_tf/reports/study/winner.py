"""The winner of a study beside every other system, setting by setting."""

from collections.abc import Mapping, Sequence

from nccl_tf.errors import UserError
from nccl_tf.experiment.study.plan import Plan, StudySetting
from nccl_tf.reports.study.pairs import compare, pair_text
from nccl_tf.reports.study.results import Result
from nccl_tf.reports.table import markdown_table

Results = Mapping[str, Sequence[Result]]
_VERDICTS = ("better", "level", "worse")


def winner_table(plan: Plan, results: Results) -> str:
    """The winner beside each system: the verdict, and both differences, in every setting.

    Args:
        plan: The plan, which names its winner.
        results: Of each setting by its name.

    Raises:
        UserError: The plan names none.
    """
    settings = settings_of_winner(plan, results)
    beside = {
        system.name: [result_of(results[setting.name], system.name) for setting in settings]
        for system in plan.systems
    }
    winner = beside.pop(plan.winner)
    rows = []
    for others in beside.values():
        pairs = [
            compare(one, other) if one and other else None
            for one, other in zip(winner, others, strict=True)
        ]
        if any(pairs):
            title = next(other.title for other in others if other)
            counts = [sum(p.verdict.startswith(word) for p in pairs if p) for word in _VERDICTS]
            rows.append([title, " / ".join(map(str, counts)), *map(pair_text, pairs)])
    names = ("beside", " / ".join(_VERDICTS), *(setting.title for setting in settings))
    return markdown_table(names, rows)


def settings_of_winner(plan: Plan, results: Results) -> list[StudySetting]:
    """Those in which the winner has run.

    Raises:
        UserError: The plan names no winner, or it has no records.
    """
    if not plan.winner:
        raise UserError("the plan names no winner: add winner = NAME, one of its systems")
    shown = [row for row in plan.settings if result_of(results[row.name], plan.winner)]
    if not shown:
        raise UserError(f"the plan's winner {plan.winner} has no records: run it first")
    return shown


def result_of(results: Sequence[Result], name: str) -> Result | None:
    """The result of a system that has run."""
    return next((r for r in results if r.cell.system.name == name and r.records), None)
