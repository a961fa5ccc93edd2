"""Declaration of a setting of the command, and the settings that a dataclass declares."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from typing import Annotated, Any, get_args, get_origin

from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.arguments.optimizers import DEFAULT_RATE
from nccl_tf.arguments.parameters import Parameter
from nccl_tf.methods.registry import METHODS
from nccl_tf.streams.catalog import DATASETS

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
            if isinstance(self.default, bool):
                return "on" if self.default else "off"
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


def option(row: Hyperparameter, topic: str) -> Setting:
    """The setting of an option that methods take as an argument, with their defaults.

    Args:
        row: One of `hyperparameters.OPTIONS`.
        topic: As for `Setting`.
    """

    def default_doc() -> str:
        values = {
            name: method.options.get(row.name, row.default) for name, method in METHODS.items()
        }
        return "off" if set(values.values()) == {None} else list_values(values)

    return Setting(
        row.name, row.kind, topic=topic, symbol=row.symbol, unit=row.unit, gt=row.gt, ge=row.ge,
        lt=row.lt, choices=row.choices, help=row.help, default_doc=default_doc,
    )  # fmt: skip


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


def list_values(values: Mapping[str, Any]) -> str:
    """The commonest value, then the others with the names that they hold for."""
    common = Counter(values.values()).most_common(1)[0][0]
    others: dict[Any, list[str]] = {}
    for name, value in values.items():
        if value != common:
            others.setdefault(value, []).append(name)
    parts = [f"{value} for {', '.join(names)}" for value, names in others.items()]
    return str(common) + (f" ({'; '.join(parts)})" if parts else "")


def by_dataset(column: str) -> Callable[[], str]:
    """Lists a column of the catalog of streams."""

    def describe() -> str:
        values = {name: getattr(row, column) for name, row in DATASETS.items()}
        return list_values({name: "all" if v is None else v for name, v in values.items()})

    return describe


def epochs_by_method() -> str:
    """Lists the default number of passes of the methods."""
    return list_values({name: method.epochs for name, method in METHODS.items()})


def batch_sizes_by_method() -> str:
    """Lists the default stream batches of the methods, on MNIST and digits and elsewhere."""
    return "; ".join(
        f"{title}: {list_values({m.name: m.batch_sizes[i] for m in METHODS.values()})}"
        for i, title in enumerate(("MNIST and digits", "elsewhere"))
    )


def stores_by_method() -> str:
    """Lists when the methods that store examples do so by default."""
    return list_values({m.name: m.stores for m in METHODS.values() if m.stores})


def learning_rates_by_method() -> str:
    """Lists the default learning rates of the methods for each family of data sets."""
    families = (("MNIST and digits", "mnist"), ("CIFAR", "cifar"), ("ImageNet", "mini_imagenet"))
    return f"{DEFAULT_RATE:g} of other optimizers than sgd; of sgd " + "; ".join(
        f"{title}: "
        + list_values({m.name: getattr(m.learning_rates, key) for m in METHODS.values()})
        for title, key in families
    )
