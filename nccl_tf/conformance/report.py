"""The findings of checks: a verdict for each item, and one error for all that failed."""

import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError, checked_name

MOST_EXCUSES = 3
"""Items that a class may leave out by a reason in `cannot`."""
Item = Callable[[Any], None]
"""A check of one thing: raises where it does not hold."""


class DiffersError(Exception):
    """An item does not hold.

    Args:
        received: What was found.
        expected: What should have been.
    """

    def __init__(self, received: str, expected: str):
        super().__init__(f"received {received}, expected {expected}")


@dataclass(frozen=True)
class Verdict:
    """The verdict on an item.

    Attributes:
        item: Its name.
        outcome: "held", "excused" or "failed".
        reason: Of an excuse, what `cannot` says; of a failure, what was received and expected.
    """

    item: str
    outcome: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.item}: {self.outcome}" + (f", {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class CheckReport:
    """The verdicts on a class, which its text lists a line each.

    Attributes:
        subject: Name of the class.
        verdicts: In the order of the items.
    """

    subject: str
    verdicts: tuple[Verdict, ...]

    def __getitem__(self, item: str) -> Verdict:
        return next(each for each in self.verdicts if each.item == item)

    def __str__(self) -> str:
        return "\n".join([self.subject, *(f"  {each}" for each in self.verdicts)])

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The verdicts on items that failed."""
        return tuple(each for each in self.verdicts if each.outcome == "failed")

    def refuse_failures(self) -> None:
        """Do nothing, unless an item failed.

        Raises:
            UserError: Every item that failed, with what was received and expected.
        """
        if self.failed:
            # One fault of a hook fails most items, all for one reason.
            items: dict[str, list[str]] = {}
            for each in self.failed:
                items.setdefault(each.reason, []).append(each.item)
            said = "\n".join(f"  {', '.join(names)}: {why}" for why, names in items.items())
            raise UserError(
                f"{self.subject} fails {len(self.failed)} of {len(self.verdicts)} checks; mend "
                f"each, or say in its `cannot` why it has no meaning:\n{said}"
            )


_LIBRARIES = {"nccl_tf", "keras", "numpy", "tensorflow", *sys.stdlib_module_names}


def _place(error: Exception) -> str:
    """Where code of somebody else raised an error, " at FILE:LINE in NAME"; "" where none did."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES:
            code = frame.f_code
            return f" at {Path(code.co_filename).name}:{line} in {code.co_name}"
    return ""


def run(
    subject: str,
    table: Mapping[str, Item],
    asked: Sequence[str] | None,
    trial: Any,
    excuses: Mapping[str, str],
    refusals: Mapping[str, Item],
) -> CheckReport:
    """Run items, each whatever becomes of the others.

    Args:
        subject: Name of the class.
        table: The items by their names.
        asked: Names of those to run; None for all.
        trial: What the items receive.
        excuses: Reasons by the names of the items that are left out.
        refusals: Of items whose excuse is a refusal: a check that the class does refuse.

    Raises:
        UserError: There is no item of a name.
    """
    names = tuple(checked_name("item", name, tuple(table)) for name in asked or table)
    verdicts, excused = [], 0
    for name in names:
        reason = excuses.get(name, "")
        excused += bool(reason)
        outcome = "excused" if reason else "held"
        try:
            if excused > MOST_EXCUSES and reason:
                raise DiffersError(
                    f"a reason to leave out a fourth item ({reason})",
                    f"{MOST_EXCUSES} at most: {', '.join(excuses)}",
                )
            if not reason:
                table[name](trial)
            elif name in refusals:
                refusals[name](trial)
        except Exception as error:  # Code of somebody else can raise any.
            outcome, reason = "failed", str(error)
            if not isinstance(error, DiffersError):
                raised = f"{type(error).__name__} ({reason}){_place(error)}"
                reason = f"received {raised}, expected no error"
                reason = "; ".join([reason, *getattr(error, "__notes__", ())])
        verdicts.append(Verdict(name, outcome, reason))
    return CheckReport(subject, tuple(verdicts))
