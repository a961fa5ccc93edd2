"""The streams by name: a row each, without importing NumPy or TensorFlow."""

from dataclasses import dataclass

from nccl_tf.errors import check_name


@dataclass(frozen=True)
class DatasetRow:
    """A row of the catalog (defaults of the paper and of its reference code).

    Args:
        name: Name at the command.
        family: "mnist", "cifar" or "mini_imagenet": chooses network and learning rate; the digits
            count as "mnist".
        kind: "permuted" (every task has all classes, its pixels permuted) or "split" (every task
            has classes of its own).
        source: Where the images come from: "digits" (scikit-learn), "mini_imagenet" (our builder)
            or the name of a TFDS set.
        default_head: Head when none is asked for.
        heads: The heads that make sense, "single" or "multi".
        num_tasks: Number of tasks, the tuning tasks among them.
        tuning_tasks: How many of these are held out for tuning.
        num_classes: Number of classes of the images.
        examples_per_task: Training examples of a task; None takes all.
    """

    name: str
    family: str
    kind: str
    source: str
    default_head: str
    heads: tuple[str, ...]
    num_tasks: int
    tuning_tasks: int = 0
    num_classes: int = 10
    examples_per_task: int | None = None


_BOTH = ("single", "multi")
DATASETS: dict[str, DatasetRow] = {
    row.name: row
    for row in (
        DatasetRow(
            "permuted_mnist", "mnist", "permuted", "mnist", "single", ("single",), 23, 3,
            examples_per_task=10_000,
        ),
        DatasetRow("split_mnist", "mnist", "split", "mnist", "single", _BOTH, 5),
        DatasetRow("split_cifar10", "cifar", "split", "cifar10", "single", _BOTH, 5),
        DatasetRow("split_cifar100", "cifar", "split", "cifar100", "multi", _BOTH, 20, 3, 100),
        DatasetRow(
            "split_mini_imagenet", "mini_imagenet", "split", "mini_imagenet", "multi", _BOTH,
            20, 3, 100,
        ),
        DatasetRow("permuted_digits", "mnist", "permuted", "digits", "single", ("single",), 10),
        DatasetRow("split_digits", "mnist", "split", "digits", "multi", _BOTH, 5),
    )
}  # fmt: skip


def get_dataset(name: str) -> DatasetRow:
    """The row of a stream.

    Raises:
        UserError: No stream has that name; the message lists the names and suggests the nearest.
    """
    return DATASETS[check_name("dataset", name, DATASETS)]
