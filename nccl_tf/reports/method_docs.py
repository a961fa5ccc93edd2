"""The page of the methods, made from the registry: what runs where, and what each method takes."""

from nccl_tf.choices import HEADS
from nccl_tf.hyperparameters import Hyperparameter
from nccl_tf.methods.registry import METHODS, Method
from nccl_tf.reports.generated_files import table
from nccl_tf.streams.catalog import DATASETS, DatasetRow

_HEAD = """\
# Methods

Made from the registry by `python run.py methods --docs=docs/methods.md`.

## What runs where

"yes": the method runs on the stream with that head. A number: the command refuses it, for the
reason of that number below the table.

"""


def methods_page() -> str:
    """The whole page in Markdown, ending in a newline."""
    return f"{_HEAD}{_support_table()}\n" + "\n".join(_section(row) for row in METHODS.values())


def unsupported_reason(method: Method, dataset: DatasetRow, head: str) -> str | None:
    """Why a method does not run on a stream with a head, as a sentence; None where it runs."""
    if head not in dataset.heads:
        return (
            "every task of a permuted stream has the same classes, so that there is nothing for a "
            f"{head}-head to tell apart"
        )
    reason = method.unsupported_reason(dataset.kind, head)
    return reason and f"{method.name}: {reason}"


def _support_table() -> str:
    columns = [(dataset, head) for dataset in DATASETS.values() for head in HEADS]
    numbers: dict[str, int] = {}
    rows = []
    for method in METHODS.values():
        cells = [f"[`{method.name}`](#{method.name})"]
        for dataset, head in columns:
            reason = unsupported_reason(method, dataset, head)
            cells.append("yes" if not reason else str(numbers.setdefault(reason, len(numbers) + 1)))
        rows.append(cells)
    names = ["method", *(f"{dataset.name} {head}" for dataset, head in columns)]
    reasons = "".join(f"{number}. {reason}\n" for reason, number in numbers.items())
    return f"{table(names, rows)}\n{reasons}"


def facts(method: Method) -> list[str]:
    """What the registry says of a method beside its numbers, a sentence each."""
    rates = method.learning_rates
    return [
        f"Learns {'all tasks at once' if method.joint else 'task after task'}; "
        f"default passes over the examples: {method.epochs}.",
        f"Memory: {method.memory or 'none'}.",
        f"Default learning rate (step size): {rates.mnist:g} on MNIST and digits, "
        f"{rates.cifar:g} on CIFAR, {rates.mini_imagenet:g} on mini-ImageNet.",
        f"Several devices or workers (`--distribute`): {'yes' if method.on_replicas else 'no'}.",
    ]


def hyperparameter_table(method: Method) -> str:
    """The numbers of a method as a table, or "" where it has none."""
    if not method.hyperparameters:
        return ""
    names = ["hyperparameter", "symbol", "unit", "default", "values", "meaning"]
    return table(names, [_cells(row) for row in method.hyperparameters])


def _section(method: Method) -> str:
    text = f"## {method.name}\n\n{method.title}.{method.source and f' {method.source}.'}\n\n"
    text += "".join(f"* {fact}\n" for fact in facts(method))
    numbers = hyperparameter_table(method)
    return f"{text}\n{numbers}" if numbers else text


def _cells(row: Hyperparameter) -> list[str]:
    return [
        f"`{row.name}`",
        row.symbol or "-",
        row.unit or "-",
        row.describe_default(),
        row.describe_range(),
        row.help,
    ]
