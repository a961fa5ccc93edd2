"""Constructors that show every argument, those too that go up a chain of classes by `**kwargs`."""

import functools
import inspect
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.errors import UserError, checked_name

_EXAMPLES = {
    "network": "keras.Sequential([keras.Input(shape), ..., keras.layers.Dense(classes)])",
    "capacity": "500",
    "slots_per_class": "5",
}
_ANNOTATIONS = {"float": float, "int": int, "choice": str}
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def show_arguments(
    cls: type, root: type, rows: Mapping[str, Hyperparameter] = MappingProxyType({})
) -> list[Hyperparameter]:
    """Give a class the signature of its constructor and of those that it hands arguments to.

    `inspect.signature(cls)` and `help(cls)` show it. The class's own parameters come first. Where
    it takes `**kwargs`, the next constructor's follow that can be left out, by name; where it takes
    `*args`, that one's positional parameters stand in their place. What the other classes'
    docstrings say of inherited arguments follows the entry `**kwargs` of this one's, or is its
    section `Args` where it has none.

    Args:
        cls: The class.
        root: The last class of the chain; its own `**kwargs` are what nobody takes.
        rows: Numbers of the class by name, which the root takes where no constructor names them.

    Returns:
        Those that no constructor names.
    """
    chain = cls.__mro__[: cls.__mro__.index(root) + 1]
    found: dict[str, inspect.Parameter] = {}
    named: set[str] = set()
    positions = names = True
    for base in chain:
        if "__init__" not in vars(base):
            continue
        _, *parameters = inspect.signature(vars(base)["__init__"]).parameters.values()
        named |= {parameter.name for parameter in parameters}
        if not (positions or names):
            continue
        for parameter in parameters:
            taken = _taken(parameter, positions, names)
            if taken is not None:
                found.setdefault(parameter.name, taken)
        kinds = {parameter.kind for parameter in parameters}
        positions = positions and inspect.Parameter.VAR_POSITIONAL in kinds
        names = names and inspect.Parameter.VAR_KEYWORD in kinds
    unnamed = [row for name, row in rows.items() if name not in named]
    of_rows = [_parameter_of(row) for row in unnamed] if names else []
    in_order = _in_order([*of_rows, *found.values()])
    cls.__signature__ = inspect.Signature(in_order)  # type: ignore[attr-defined]
    if cls.__doc__:
        others = [inspect.cleandoc(base.__doc__ or "") for base in chain[1:]]
        others.append("Args:\n" + "".join(f"    {row.name}: {row.help}.\n" for row in unnamed))
        cls.__doc__ = _with_inherited(
            inspect.cleandoc(cls.__doc__), others, [p.name for p in in_order]
        )
    if "__init__" in vars(cls):
        _say_what_is_missing(cls)
    return unnamed


def _parameter_of(row: Hyperparameter) -> inspect.Parameter:
    annotation: Any = _ANNOTATIONS[row.kind]
    if row.default is None:
        annotation = annotation | None
    return inspect.Parameter(
        row.name, inspect.Parameter.KEYWORD_ONLY, default=row.default, annotation=annotation
    )


def _say_what_is_missing(cls: type) -> None:
    """Let a class's own constructor say what an argument that it lacks is, and not its name alone.

    In place of Python's TypeError it raises a UserError. An object with `_note_made` is told when
    its constructor has ended.
    """
    init = vars(cls)["__init__"]
    signature = inspect.signature(init)

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind_partial(self, *args, **kwargs).arguments
        except TypeError:  # Python says what is wrong.
            given = dict(signature.parameters)
        missing = [
            name
            for name, parameter in signature.parameters.items()
            if name not in given
            and parameter.default is inspect.Parameter.empty
            and parameter.kind not in _VARIADIC
        ]
        if missing:
            raise UserError(_what_is_missing(cls, missing))
        init(self, *args, **kwargs)
        # The first of the chain ends last.
        if type(self).__init__ is checked and hasattr(self, "_note_made"):
            self._note_made()

    checked.__signature__ = signature  # type: ignore[attr-defined]  # Keras looks at no wrapped one
    cls.__init__ = checked  # type: ignore[misc]


def _what_is_missing(cls: type, missing: list[str]) -> str:
    described = described_arguments(cls.__doc__ or "")
    parts = []
    for name in missing:
        _, _, meaning = described.get(name, "").strip().partition(":")
        meaning = " ".join(meaning.split()).rstrip(".")
        parts.append(f"{name}={_EXAMPLES.get(name, '...')}{f' ({meaning})' if meaning else ''}")
    return f"received no {' and no '.join(missing)} for {cls.__name__}: pass {' and '.join(parts)}"


def _taken(parameter: inspect.Parameter, positions: bool, names: bool) -> inspect.Parameter | None:
    """How a constructor's parameter is reached, by position or by name alone; None if not at all.

    A parameter without a default that does not arrive by position is one that the class before
    passes itself.
    """
    if parameter.kind in _VARIADIC:
        return None
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
        return parameter if names else None
    if positions:
        return parameter
    optional = names and parameter.default is not inspect.Parameter.empty
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) if optional else None


def _in_order(parameters: Iterable[inspect.Parameter]) -> list[inspect.Parameter]:
    """By kind. One that has to be passed comes by name where it would follow one that has not."""
    placed, optional = [], False
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            if optional and parameter.default is inspect.Parameter.empty:
                parameter = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            optional = optional or parameter.default is not inspect.Parameter.empty
        placed.append(parameter)
    return sorted(placed, key=lambda parameter: parameter.kind)


def _with_inherited(text: str, others: list[str], names: list[str]) -> str:
    """A docstring with the entries of arguments that only those of other classes have."""
    own = described_arguments(text)
    known: dict[str, str] = {}
    for other in others:
        known = described_arguments(other) | known
    inherited = "".join(known[name] for name in names if name in known and name not in own)
    if "**kwargs" in own:
        text = f"{text}\n".replace(own["**kwargs"], own["**kwargs"] + inherited)
    elif inherited and not own:
        text = f"{text}\n\nArgs:\n{inherited}"
    return text.rstrip()


def described_arguments(text: str) -> dict[str, str]:
    """The entries of a docstring's section `Args`, whole lines, by the argument's name."""
    section = re.search(r"^Args:\n((?:    .*\n)+)", f"{text}\n", re.MULTILINE)
    entries = re.split(r"^(?=    \S)", section[1], flags=re.MULTILINE)[1:] if section else []
    return {entry.strip().partition(":")[0]: entry for entry in entries}


def refuse_unknown(cls: type, unknown: Iterable[str]) -> None:
    """Refuse the arguments that no constructor of a class has taken.

    Args:
        cls: The class that is made, whose signature `show_arguments` has composed.
        unknown: Their names.

    Raises:
        UserError: There is one; the message suggests the nearest argument and lists all.
    """
    left = list(unknown)
    known = [name for name in inspect.signature(cls).parameters if name not in left]
    for name in left:
        checked_name(f"argument of {cls.__name__}", name, known)
