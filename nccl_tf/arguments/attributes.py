"""Names of a base that a class below it must not replace without knowing it.

A class with `_owns_private_names` is such a base: its functions, its private names too, and the
attributes that it annotates are its own.
"""

import functools
import inspect
import types
from typing import Any, ClassVar, Final, get_args, get_origin

from nccl_tf.errors import UserError

_MARK = "_owns_private_names"
_UNSET = object()


def check_attribute(owner: Any, name: str, value: Any) -> None:
    """Check that an attribute that is set does not take the place of one of a base.

    A class below a base cannot know all of its names, and one that it replaces fails far from the
    line at fault, or not at all.

    Args:
        owner: The object.
        name: The attribute's name.
        value: Its new value.

    Raises:
        UserError: The value is of another type than the base annotates, replaces one that is
            `Final`, or takes the place of a property that is not set, of a private function, or,
            being no function, of a public one.
    """
    cls: type = type(owner)
    own, before = attributes_of(cls), vars(owner).get(name, _UNSET)
    if name not in own:
        found = next((vars(base)[name] for base in _owners(cls) if name in vars(base)), None)
        is_function = callable(found) and (_is_private(name) or not callable(value))
        replaces = is_function or (isinstance(found, property) and found.fset is None)
    else:
        kind, is_final = own[name]
        is_kept = not is_final or before is _UNSET or before is value or _are_equal(before, value)
        replaces = (value is not None and not isinstance(value, kind)) or not is_kept
    if replaces:
        is_fixed = name in own and own[name][1] and before is not _UNSET
        raise UserError(
            f"received {name} = {value!r} as an attribute of a {type(owner).__name__}, whose base "
            "has one of that name"
            + (
                f", {before!r}, which is fixed once it is made: make another object with it, or "
                "give one of your own another name"
                if is_fixed
                else ": give it another name"
            )
        )


@functools.cache
def attributes_of(cls: type) -> dict[str, tuple[Any, bool]]:
    """The attributes that bases annotate: the types of their values, and whether they are final.

    Args:
        cls: A class, with those of its bases and its own where it is one; what is said of a class
            itself (`ClassVar`) is left out.
    """
    found: dict[str, tuple[Any, bool]] = {}
    for base in reversed(_owners(cls)):
        for name, hint in inspect.get_annotations(base).items():
            kind: Any = get_origin(hint) or hint
            if kind is ClassVar:
                continue
            is_final = kind is Final
            value: Any = get_args(hint)[0] if is_final else hint
            kind = value if isinstance(value, types.UnionType) else get_origin(value) or value
            found[name] = (object if kind is Any else kind, is_final)
    return found


def check_private_names(cls: type) -> None:
    """Check that a class defines no private name of a base.

    Such a name may change, and what the base calls by it would be the function of the class.

    Args:
        cls: The class, when it is made.

    Raises:
        UserError: It defines one.
    """
    for name in filter(_is_private, vars(cls)):
        owners = (base for base in _owners(cls)[(_MARK in vars(cls)) :] if name in vars(base))
        if name != _MARK and (base := next(owners, None)):
            raise UserError(
                f"received {name} in the class {cls.__name__}, a private name of its base "
                f"{base.__name__}: give it another name"
            )


@functools.cache
def _owners(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if vars(base).get(_MARK)]


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _are_equal(one: Any, other: Any) -> bool:
    is_plain = isinstance(one, (bool, int, float, str, list))
    return is_plain and type(one) is type(other) and one == other
