"""A named value with its kind, default and range: what flags and hyperparameters share."""

import math
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from nccl_tf.errors import UserError, check_name


@dataclass(frozen=True)
class Parameter:
    """A value that a user may set.

    Args:
        name: Name of the flag, without the dashes.
        kind: "float", "int", "choice", or what only a flag of the command can be: "text", "bool",
            "ints" (integers, separated by commas), "names" (texts, separated by commas; may be
            repeated) or "sweep" (the name of another flag and values for it; may be repeated).
        default: Value where none is set; None switches an optional number off, or stands for what
            `default_doc` says.
        help: What it sets, one sentence.
        symbol: Symbol in the paper, or "" where it has none.
        unit: Unit ("examples", "1/step size"), or "" where it has none.
        gt: Exclusive lower bound.
        ge: Inclusive lower bound.
        lt: Exclusive upper bound.
        le: Inclusive upper bound.
        choices: The valid values of a "choice".
        default_doc: The default in words, where its value does not say it; a function where they
            depend on what is registered.
    """

    name: str
    kind: str
    default: Any = None
    _: KW_ONLY
    help: str
    symbol: str = ""
    unit: str = ""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    choices: Iterable[str] = ()
    default_doc: str | Callable[[], str] = ""

    def check(self, value: Any) -> Any:
        """Return `value` if it is valid.

        Raises:
            UserError: The value is not finite, out of range or not one of the choices.
        """
        if value is None and self.default is None:
            return value
        if self.kind == "choice":
            return check_name(f"--{self.name}", value, self.choices)
        if self.kind in ("int", "float") and not self._is_in_range(value):
            raise UserError(
                f"--{self.name}={value} is out of range: expected {self.describe_range()}"
            )
        return value

    def _is_in_range(self, value: float) -> bool:
        return (
            math.isfinite(value)
            and (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def describe_range(self) -> str:
        """The valid values in words, for messages and help."""
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices)
        bounds = (
            (self.gt, "above"),
            (self.ge, "of at least"),
            (self.lt, "below"),
            (self.le, "of at most"),
        )
        parts = [f"{word} {bound:g}" for bound, word in bounds if bound is not None]
        article = "an integer" if self.kind == "int" else "a finite number"
        return " ".join([article, " and ".join(parts)]).strip()

    def describe_default(self) -> str:
        """The default in words; "off" for most optional numbers."""
        if callable(self.default_doc):
            return self.default_doc()
        return self.default_doc or ("off" if self.default is None else str(self.default))
