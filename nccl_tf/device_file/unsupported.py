"""Errors of what LiteRT cannot do, by the operation that would need it."""

from typing import Any


class UnsupportedError(Exception):
    """An operation of a traced function has no replacement by LiteRT's own.

    Args:
        op: The operation.
        how: What of it is not supported, the end of "operation X ...".

    Attributes:
        kind: The operation's type.
        name: Its name in the graph, with those of the layers around it.
        how: The argument.
    """

    def __init__(self, op: Any, how: str = ""):
        self.kind, self.name, self.how = op.type, op.name, how
        super().__init__(f"{op.type} {how}".strip())
