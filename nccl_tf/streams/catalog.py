"""The catalog of named streams; importing it needs neither NumPy nor TensorFlow."""

from dataclasses import dataclass

from nccl_tf.errors import check_name


@dataclass(frozen=True)
class DatasetRow:
    """A stream of the catalog, with the defaults of the paper and its reference code.

    Args:
        name: Name on the command line.
        family: "mnist", "cifar" or "mini_imagenet": selects network and learning rate; the digits
            belong to "mnist".
        kind: "permuted" (every task has all classes, with permuted pixels) or "split" (the tasks
            have disjoint classes).
        source: Source of the images: "digits" (scikit-learn), "mini_imagenet" (this package's
            builder) or the name of a TFDS data set.
        default_head: Head if none is specified.
        heads: The valid heads, of "single" and "multi".
        num_tasks: Number of tasks, including the tuning tasks.
        tuning_tasks: Number of these tasks that are held out for tuning.
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
    """Look up a stream by name.

    Raises:
        UserError: Unknown name; the message suggests the nearest name and lists all.
    """
    return DATASETS[check_name("dataset", name, DATASETS)]
