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
    rows = []
    for system in plan.systems:
        if system.name == plan.winner:
            continue
        pairs = [
            compare(winner, other) if winner and other else None
            for winner, other in (
                (result_of(results[s.name], plan.winner), result_of(results[s.name], system.name))
                for s in settings
            )
        ]
        if any(pairs):
            title = next(r.title for r in results[settings[0].name] if r.cell.system == system)
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
