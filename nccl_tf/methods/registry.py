"""The methods by name, each a row of its file in `methods/rows`, without importing TensorFlow."""

import importlib
import pkgutil
from types import ModuleType

from nccl_tf.errors import UserError, checked_name
from nccl_tf.extensions.registration import add_row, checked_identifier
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods import rows
from nccl_tf.methods.row import Method


def rows_in(package: ModuleType) -> dict[str, Method]:
    """The rows in the modules of a package by name, in the order of their places.

    Raises:
        ValueError: Two rows have the same name.
    """
    found: dict[str, Method] = {}
    for module in pkgutil.iter_modules(package.__path__):
        file = importlib.import_module(f"{package.__name__}.{module.name}")
        for row in vars(file).values():
            if isinstance(row, Method) and found.setdefault(row.name, row) is not row:
                raise ValueError(f"{file.__name__} has another row of the name {row.name!r}")
    return dict(sorted(found.items(), key=lambda item: (item[1].place, item[0])))


METHODS = rows_in(rows)


def register_method(method: Method) -> None:
    """Add a method to the registry, so that it runs by name: in runs, sweeps and reports.

    Args:
        method: Its row.

    Raises:
        UserError: The name is taken or no lower-case identifier, no kind of memory has the name of
            its memory, or a hyperparameter of another kind has the name of one of its own.

    Example:
        >>> nccl_tf.register_method(
        ...     nccl_tf.Method(
        ...         name="my_method",
        ...         title="My method",
        ...         learner=MyLearner,
        ...         memory="ring",
        ...     )
        ... )
    """
    if method.memory is not None:
        get_memory(method.memory)
    kinds = {row.name: row.kind for other in METHODS.values() for row in other.hyperparameters}
    for row in method.hyperparameters:
        checked_identifier(row.name, f"the name of a hyperparameter of {method.name}")
        if kinds.get(row.name, row.kind) != row.kind:
            raise UserError(
                f"{method.name} has a hyperparameter {row.name!r} of the kind {row.kind!r}, and "
                f"other methods have one of the kind {kinds[row.name]!r}: choose another name"
            )
    add_row(METHODS, method, "method")


def get_method(name: str) -> Method:
    """The row of a method.

    Raises:
        UserError: No method has that name; the message lists the names and suggests the nearest.
    """
    titles = {row.title.lower(): row.name for row in METHODS.values()}
    if name not in METHODS and str(name).lower() in titles:
        raise UserError(
            f"received the method {name!r}, which is the title of one: its name is "
            f"{titles[str(name).lower()]!r}"
        )
    kinds = [other for other in METHODS if other.startswith(f"{str(name).lower()}_")]
    if name not in METHODS and kinds:
        # A reservoir serves any stream.
        kinds.sort(key=lambda other: not other.endswith("_reservoir"))
        raise UserError(
            f"unknown method {name!r}: did you mean {' or '.join(map(repr, kinds))}? "
            f"Choose one of {', '.join(METHODS)}"
        )
    return METHODS[checked_name("method", name, METHODS)]
