"""The flags of a run, of which parser, help and checks are made.

Most are declared by the fields of `Settings` and `Options`, and by the methods' hyperparameters;
here stand those that size the memory. Imports nothing heavy.
"""

from collections.abc import Mapping
from typing import Any

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.options import OPTIONS
from nccl_tf.records.setting import MEMORY, METHOD, Setting, list_values
from nccl_tf.records.settings import SETTINGS

MEMORY_SIZES = {
    row.name: row
    for row in (
        Setting(
            "memory_per_class",
            "int",
            5,
            topic=MEMORY,
            symbol="m",
            unit="examples",
            ge=1,
            help=(
                "examples for each class of each task; a reservoir holds this times all classes "
                "of all evaluated tasks"
            ),
        ),
        Setting(
            "memory",
            "int",
            topic=MEMORY,
            symbol="|M|",
            unit="examples",
            ge=1,
            default_doc="m x classes per task x evaluated tasks",
            help="examples that the memory holds in all, in place of --memory_per_class",
        ),
    )
}
"""The flags that size a memory, by name."""


def run_flags() -> tuple[Setting, ...]:
    """Every flag of a run; those of a command stand in its module of `nccl_tf.commands`."""
    return (
        *SETTINGS.values(),
        *MEMORY_SIZES.values(),
        *_hyperparameter_flags(),
        *OPTIONS.values(),
    )


def methods_with(hyperparameter: str) -> dict[str, Hyperparameter]:
    """The methods that have a hyperparameter of that name, each with its own row of it."""
    return {
        method.name: row
        for method in METHODS.values()
        for row in method.hyperparameters
        if row.name == hyperparameter
    }


def hyperparameter_names() -> tuple[str, ...]:
    """Names of all methods' hyperparameters, each once, in the registry's order."""
    rows = (row for method in METHODS.values() for row in method.hyperparameters)
    return tuple(dict.fromkeys(row.name for row in rows))


def _hyperparameter_flags() -> list[Setting]:
    result = []
    for name in hyperparameter_names():
        rows = methods_with(name)
        row = next(iter(rows.values()))
        default = list_values({method: r.describe_default() for method, r in rows.items()})
        help_text = f"{row.help}; {row.describe_range()}; of {', '.join(rows)}"
        result.append(
            Setting(
                name,
                row.kind,
                topic=METHOD,
                symbol=row.symbol,
                unit=row.unit,
                choices=row.choices,
                default_doc=default,
                help=help_text,
            )
        )
    return result


def as_arguments(flag_values: Mapping[str, Any]) -> list[str]:
    """Values by name as a command line would give them; None is left out."""
    return [
        f"--{name}={_as_text(value)}" for name, value in flag_values.items() if value is not None
    ]


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
