"""The defaults of settings in words, for the help, where methods or streams differ in them."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from nccl_tf.arguments.optimizers import DEFAULT_RATE
from nccl_tf.methods.registry import METHODS
from nccl_tf.streams.catalog import DATASETS


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
