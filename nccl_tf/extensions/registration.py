"""Adding rows to the tables of methods, memories and streams from outside of the package."""

import re
from typing import Any

from nccl_tf.errors import UserError

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def add_row(table: dict[str, Any], row: Any, what: str) -> None:
    """Add a row to a table under its name.

    Args:
        table: Rows by name.
        row: With an attribute `name`, which names folders too.
        what: What a row is, for the message ("method").

    Raises:
        UserError: The name is taken, or is no lower-case identifier.
    """
    checked_identifier(row.name, f"a {what}'s name")
    if row.name in table:
        raise UserError(
            f"there is a {what} {row.name!r} already: register it under another name, and once only"
        )
    table[row.name] = row


def checked_identifier(name: str, what: str) -> str:
    """Return a name that may stand in a flag or a path.

    Raises:
        UserError: It is something else than lower-case letters, digits and underscores.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UserError(
            f"{what} is {name!r}: expected lower-case letters, digits and underscores, such as "
            "my_method"
        )
    return name
