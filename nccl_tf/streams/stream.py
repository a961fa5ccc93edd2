"""A stream: the sequence of tasks that a learner is trained on."""

from collections.abc import Iterator
from dataclasses import dataclass

from nccl_tf.streams.arrays import PixelScaling
from nccl_tf.streams.task import Task


@dataclass(frozen=True)
class Stream:
    """A sequence of tasks; iteration, `len` and indexing refer to the evaluated tasks.

    Args:
        name: Name in the catalog.
        family: "mnist", "cifar" or "mini_imagenet".
        head: "single" (one head for all tasks) or "multi" (one head per task).
        tasks: The evaluated tasks that are run, in order.
        tuning: The tasks held out for choosing hyperparameters.
        num_tasks: Number of tasks the data are split into, including tuning tasks and tasks beyond
            `max_tasks`.
        num_classes: Number of classes, and of the network's logits.
        example_shape: Shape of one example, such as (height, width, channels).
        pixels: Pixel scaling of the network.
    """

    name: str
    family: str
    head: str
    tasks: tuple[Task, ...]
    tuning: tuple[Task, ...]
    num_tasks: int
    num_classes: int
    example_shape: tuple[int, int, int]
    pixels: PixelScaling

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """The classes of each task."""
        return tuple(task.classes for task in self.tasks)

    @property
    def heads(self) -> tuple[tuple[int, ...], ...] | None:
        """The classes of each head with a multi head, None with a single head."""
        return self.task_classes if self.head == "multi" else None

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]
