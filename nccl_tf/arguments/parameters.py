"""A named value with its kind, default and range, and the flag of the command that it may be."""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from typing import Annotated, Any, get_args, get_origin

from nccl_tf.errors import UserError, checked_name

RUN, STREAM, NETWORK, MEMORY = "Method and seeds", "Stream of tasks", "Network", "Replay memory"
RATE, METHOD, SPEED, OUTPUT = "Learning rate", "Methods", "Execution", "Input and output"
TOPICS = (RUN, STREAM, NETWORK, MEMORY, RATE, METHOD, SPEED, OUTPUT)
"""The headings of the help, in its order."""

_KINDS = {
    str: "text",
    int: "int",
    float: "float",
    bool: "bool",
    tuple[int, ...]: "ints",
    tuple[str, ...]: "names",
}


@dataclass(frozen=True)
class Parameter:
    """A value that a user may set.

    Args:
        name: Name of the flag, without the dashes.
        kind: "float", "int", "choice", "bool", or what only a flag of the command can be: "text",
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
            UserError: The value is no number, not finite, out of range, no integer where one is
                expected, not one of the choices, or neither True nor False of a "bool".
        """
        if value is None and self.default is None:
            return value
        if self.kind == "bool" and not isinstance(value, bool):
            raise UserError(f"--{self.name}={value!r}: expected True or False")
        if self.kind == "choice":
            return checked_name(f"--{self.name}", value, self.choices)
        if self.kind in ("int", "float") and not self._is_in_range(value):
            shown = repr(value) if isinstance(value, str) else value
            raise UserError(
                f"--{self.name}={shown} is out of range: expected {self.describe_range()}"
            )
        return value

    def _is_in_range(self, value: Any) -> bool:
        try:
            is_finite = math.isfinite(value)
        except TypeError:  # no number
            return False
        return (
            is_finite
            and (self.kind != "int" or value == int(value))
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
        if self.default_doc:
            return self.default_doc
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        return "off" if self.default is None else str(self.default)


@dataclass(frozen=True)
class Setting(Parameter):
    """A flag of the command.

    Args:
        **kwargs: As for `Parameter`. A flag's value is None where it is not set, so that it can be
            told from one that is set to its default.
        topic: Heading in the help, one of `TOPICS`.
        more: What else it may be, for the help.
    """

    _: KW_ONLY
    topic: str
    more: str = ""

    def describe(self) -> str:
        """Its meaning, for the help."""
        return f"{self.help or self.describe_range()}{self.more}"

    def describe_default(self) -> str:
        """The default in words."""
        if not self.default_doc:
            if isinstance(self.default, tuple):
                return ",".join(map(str, self.default))
            if isinstance(self.default, float):
                return f"{self.default:g}"
        return super().describe_default()

    def value(self, flag_values: Mapping[str, Any], default: Any = None) -> Any:
        """The checked value of the flag, or the default where it is not set.

        Args:
            flag_values: Values of flags by name; None or absent where not set.
            default: Takes the place of the row's default where that is None.

        Raises:
            UserError: The value is not valid.
        """
        value = flag_values.get(self.name)
        if value is None:
            value = default if self.default is None else self.default
        return self.check(value)


setting: Callable[..., Setting] = functools.partial(Setting, "", "")
"""A setting without name and kind, which come from the field that it annotates."""


def declared_settings(cls: type) -> dict[str, Setting]:
    """The settings that fields of a dataclass declare as `Annotated[type, setting(...)]`, by name.

    The name is the field's, the kind follows from its type, and a default of the field is that of
    the setting.
    """
    result = {}
    for field in fields(cls):
        if get_origin(field.type) is not Annotated:
            continue
        annotation, row = get_args(field.type)
        # Of "int | None" the int.
        types = [part for part in (annotation, *get_args(annotation)) if part in _KINDS]
        kind = "choice" if row.choices else _KINDS[types[0]]
        default = row.default if field.default in (None, MISSING) else field.default
        result[field.name] = replace(row, name=field.name, kind=kind, default=default)
    return result
