"""Attributes of a base that a class below it must not replace without knowing it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nccl_tf.errors import UserError


def check_attribute(
    owner: Any,
    name: str,
    value: Any,
    bases: Sequence[type],
    own: Mapping[str, Any],
    changing: Collection[str],
) -> None:
    """Check that an attribute that is set does not take the place of one of the base.

    A class below a base cannot know all of its names, and one that it replaces fails far from the
    line at fault, or not at all.

    Args:
        owner: The object.
        name: The attribute's name.
        value: Its new value.
        bases: Its bases, whose functions are no attributes to be set.
        own: The attributes of the base, with their types. None is of every type.
        changing: Those of them that the base changes later.

    Raises:
        UserError: The value is of another type, replaces one that does not change, or is no
            function in place of one.
    """
    before = vars(owner).get(name)
    if name not in own:
        is_function = any(callable(vars(base).get(name)) for base in bases)
        replaces = is_function and not callable(value)
    elif value is not None and not isinstance(value, own[name]):
        replaces = True
    else:
        is_kept = before is None or before is value or name in changing
        replaces = not is_kept and not (type(before) is type(value) and _are_equal(before, value))
    if replaces:
        raise UserError(
            f"received {name} = {value!r} as an attribute of a {type(owner).__name__}, whose base "
            "has one of that name: give it another name"
        )


def _are_equal(one: Any, other: Any) -> bool:
    return isinstance(one, (bool, int, float, str, list)) and one == other
