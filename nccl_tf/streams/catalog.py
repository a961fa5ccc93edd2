"""The catalog of named streams; importing it needs neither NumPy nor TensorFlow."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nccl_tf.arguments.choices import HEADS, STREAM_KINDS
from nccl_tf.arguments.names import plain_name
from nccl_tf.errors import UserError, checked_name
from nccl_tf.extensions.registration import add_row

NO_CLASSES = "its targets are numbers to predict, and the command trains classifiers"
"""Why the command refuses a stream whose targets are no classes."""


@dataclass(frozen=True, kw_only=True)
class StreamRow:
    """A stream of the catalog, with the defaults of the paper and its reference code.

    Args:
        name: Name at the command.
        kind: "permuted" (every task has all classes, its pixels permuted), "rotated" (its images
            rotated), "domain" (its inputs from another domain) or "split" (every task has classes
            of its own).
        num_tasks: Number of tasks, the tuning tasks among them.
        num_classes: Number of classes of the examples, or of numbers to predict.
        source: Where the examples come from: a name of `streams.sources.examples.SOURCES`, or a
            function of the keywords `data_dir` and `manual_dir` that returns the training and the
            test examples, (inputs, labels) each, as `stream_from_arrays` takes them.
        make: A function that makes the stream itself, in place of `source`: of the keywords
            `plan` (a `StreamPlan`), `seed`, `data_dir` and `manual_dir`.
        family: "mnist", "cifar" or "mini_imagenet", or another name: chooses the default network
            (a dense one unless of CIFAR or ImageNet) and learning rate; the digits count as
            "mnist".
        heads: The heads that make sense, "single" or "multi".
        default_head: Head when none is asked for.
        tuning_tasks: How many of the tasks are held out for tuning.
        examples_per_task: Training examples of a task; None takes all.
        has_classes: Whether targets are class numbers; where they are numbers to predict, the
            stream is for Python, and the command refuses to train on it.
    """

    name: str
    kind: str
    num_tasks: int
    num_classes: int = 10
    source: str | Callable[..., Any] = ""
    make: Callable[..., Any] | None = None
    family: str = "other"
    heads: tuple[str, ...] = ("single",)
    default_head: str = "single"
    tuning_tasks: int = 0
    examples_per_task: int | None = None
    has_classes: bool = True


DATASETS: dict[str, StreamRow] = {
    row.name: row
    for row in (
        StreamRow(
            name="permuted_mnist",
            kind="permuted",
            num_tasks=23,
            source="mnist",
            family="mnist",
            tuning_tasks=3,
            examples_per_task=10_000,
        ),
        StreamRow(
            name="split_mnist",
            kind="split",
            num_tasks=5,
            source="mnist",
            family="mnist",
            heads=HEADS,
        ),
        StreamRow(
            # Lopez-Paz and Ranzato (2017): 20 tasks of 1,000 examples.
            name="rotated_mnist",
            kind="rotated",
            num_tasks=20,
            source="mnist",
            family="mnist",
            examples_per_task=1_000,
        ),
        StreamRow(
            name="fashion_mnist",
            kind="split",
            num_tasks=5,
            source="fashion_mnist",
            family="mnist",
            heads=HEADS,
        ),
        StreamRow(
            name="split_cifar10",
            kind="split",
            num_tasks=5,
            source="cifar10",
            family="cifar",
            heads=HEADS,
        ),
        StreamRow(
            name="split_cifar100",
            kind="split",
            num_tasks=20,
            num_classes=100,
            source="cifar100",
            family="cifar",
            heads=HEADS,
            default_head="multi",
            tuning_tasks=3,
        ),
        StreamRow(
            name="split_mini_imagenet",
            kind="split",
            num_tasks=20,
            num_classes=100,
            source="mini_imagenet",
            family="mini_imagenet",
            heads=HEADS,
            default_head="multi",
            tuning_tasks=3,
        ),
        StreamRow(
            name="permuted_digits",
            kind="permuted",
            num_tasks=10,
            source="digits",
            family="mnist",
        ),
        StreamRow(
            name="split_digits",
            kind="split",
            num_tasks=5,
            source="digits",
            family="mnist",
            heads=HEADS,
            default_head="multi",
        ),
        StreamRow(name="reuters", kind="split", num_tasks=5, source="reuters", heads=HEADS),
        StreamRow(
            name="breast_cancer",
            kind="domain",
            num_tasks=5,
            num_classes=2,
            source="breast_cancer",
        ),
        StreamRow(
            name="diabetes",
            kind="domain",
            num_tasks=5,
            num_classes=1,
            source="diabetes",
            has_classes=False,
        ),
    )
}


SCHEMES = ("tfds", "folder", "list", "csv")
"""Beginnings of the name of a data set, before a colon: "tfds:mnist", "folder:pets"."""


def scheme_of(name: Any) -> str | None:
    """The scheme of a data set by name, such as "tfds" of "tfds:mnist"; None of other names."""
    scheme, colon, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    return scheme if colon and rest and scheme in SCHEMES else None


def short_name(name: str) -> str:
    """A data set by name without the folders of a path: "folder:pets" of "folder:/data/pets"."""
    scheme, _, rest = name.partition(":")
    last = rest if scheme == "tfds" else os.path.basename(os.path.abspath(rest))
    return plain_name(f"{scheme}:{last}")


def register_stream(row: StreamRow) -> None:
    """Add a stream to the catalog, so that `load_stream` and `--dataset` know its name.

    Args:
        row: Its row, with a `source` of examples or with `make`.

    Raises:
        UserError: The name is taken or no lower-case identifier, the kind is unknown, the default
            head is none of the heads, or it has not one of `source` and `make`.

    Example:
        >>> def source(data_dir, manual_dir):
        ...     return (train_inputs, train_labels), (test_inputs, test_labels)
        >>> nccl_tf.register_stream(
        ...     nccl_tf.StreamRow(name="split_mine", kind="split", num_tasks=5, source=source)
        ... )
    """
    checked_name(f"kind of the stream {row.name}", row.kind, STREAM_KINDS)
    for head in row.heads:
        checked_name(f"head of the stream {row.name}", head, HEADS)
    checked_name(f"default head of the stream {row.name}", row.default_head, row.heads)
    if bool(row.source) == (row.make is not None):
        raise UserError(
            f"the stream {row.name} has {'both' if row.source else 'neither'} source and make: "
            "expected one of them, a source of examples to cut into tasks or a maker of the stream"
        )
    add_row(DATASETS, row, "stream")


class _StreamsOfClasses:
    """The names of the streams that the command trains on, those of plugins too."""

    def __iter__(self) -> Iterator[str]:
        return (name for name, row in DATASETS.items() if row.has_classes)


STREAMS_OF_CLASSES = _StreamsOfClasses()


def get_dataset(name: str) -> StreamRow:
    """Look up a stream by name.

    Raises:
        UserError: Unknown name; the message suggests the nearest name and lists all.
    """
    return DATASETS[checked_name("dataset", name, DATASETS)]
