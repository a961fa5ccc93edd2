"""A stream: the sequence of tasks that a learner is trained on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import (
    PixelScaling,
    dtype_name,
    each_input,
    pixel_range,
    pixel_scaling,
    shown_class,
)
from nccl_tf.streams.blurry import blur_tasks
from nccl_tf.streams.mapped import check_tasks, map_tasks
from nccl_tf.streams.task import Task
from nccl_tf.streams.validation import hold_out

_MOST_SHOWN = 8


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
        num_classes: Number of classes, and of the network's logits; where targets are no classes,
            of the network's outputs.
        example_shape: Shape of one example, such as (height, width, channels); a dictionary of
            shapes where inputs have names.
        pixels: Pixel scaling of the network.
        example_dtype: dtype of the inputs ("string" for text), or a dictionary of dtypes.
        class_names: The names of the classes in the order of their numbers; None where the data
            tell none.
        positive: The name of class 1, where a user chose which of two classes that is, as metrics
            of two classes judge it; None where nobody did.
        made: How its examples were chosen otherwise than its name says, such as "blurred 0.1";
            records of `learn` name the stream with it.
    """

    name: str
    family: str
    head: str
    tasks: tuple[Task, ...]
    tuning: tuple[Task, ...]
    num_tasks: int
    num_classes: int
    example_shape: Any
    pixels: PixelScaling
    example_dtype: Any = "uint8"
    class_names: tuple[str, ...] | None = None
    positive: str | None = None
    made: str = ""

    def __post_init__(self) -> None:
        for task in (*self.tasks, *self.tuning):
            task.class_names, task.positive = self.class_names or (), self.positive

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """The classes of each task."""
        return tuple(task.classes for task in self.tasks)

    @property
    def heads(self) -> tuple[tuple[int, ...], ...] | None:
        """The classes of each head with a multi head, None with a single head."""
        return self.task_classes if self.head == "multi" else None

    def shown(self, label: int) -> str:
        """A class as reports show it: its name, or its number where it has none.

        Args:
            label: Its number.

        Example:

        ```python
        names = np.array(["cat", "ant", "dog", "bee"] * 10)
        inputs = np.random.default_rng(0).normal(size=(40, 6))
        stream = nccl_tf.stream_from_arrays((inputs, names), (inputs, names), num_tasks=2)
        print([[stream.shown(label) for label in task.classes] for task in stream])
        ```
        """
        return shown_class(self.class_names, label)

    def blurred(self, share: float, seed: int = 0) -> "Stream":
        """The blurry form of this stream: tasks overlap in their training examples.

        Args:
            share: Of each task's training examples that the other tasks get instead, in [0, 1).
            seed: Seed of the draws, >= 0.

        Raises:
            UserError: The share is out of range, the stream has one task or a head for each task.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", head="single").blurred(0.1)
        ```
        """
        if self.head == "multi":
            raise UserError(
                f"received share={share} for {self.name} with a head for each task, which would "
                'mask the examples of other tasks: take head="single"'
            )
        tasks = blur_tasks(self.tasks, share, seed)
        return replace(self, tasks=tasks, made=f"{self.made} blurred {share:g}".strip())

    def with_validation(self, share: float, seed: int = 0) -> "Stream":
        """This stream with validation examples in each task, taken from its training examples.

        `task.validation` has them. `fit(task)` and `learn` measure them at the end of each epoch,
        so that callbacks may watch "val_accuracy".

        Args:
            share: Of the training examples of each class, in (0, 1), rounded up.
            seed: Seed of the draws, >= 0.

        Raises:
            UserError: The share is out of range, or no class of a task has two examples.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits").with_validation(0.1)
        images, labels = stream[0].validation
        ```
        """
        tasks = hold_out(self.tasks, share, seed)
        return replace(self, tasks=tasks, made=f"{self.made} without {share:g}".strip())

    def map(self, function: Callable[[Any], Any]) -> "Stream":
        """This stream with other inputs, such as the features that a frozen network makes of them.

        Tasks, labels, names of classes, heads and tuning tasks stay. The function runs at once, and
        once over each part, so that all are of the same weights; its results are kept in memory.

        Args:
            function: From the inputs of a part of a task, [n, ...] or a dictionary of such arrays,
                to the new ones, with a row for each example in order.

        Raises:
            UserError: It makes another number of rows, NaN or infinity, or tasks of other forms.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits")
        rows = stream.map(lambda images: images.reshape(len(images), -1))
        print(rows.example_shape)
        ```
        """
        tasks = map_tasks(self.tasks, function)
        check_tasks(tasks)
        inputs = tasks[0].train.inputs
        return replace(
            self,
            tasks=tasks,
            tuning=map_tasks(self.tuning, function),
            example_shape=each_input(inputs, lambda array: array.shape[1:]),
            example_dtype=each_input(inputs, dtype_name),
            pixels=pixel_scaling([pixel_range(task.train) for task in tasks]),
        )

    def __repr__(self) -> str:
        # Its tasks may be hundreds, and so may its classes.
        names = "" if self.class_names is None else f", class_names={_listed(self.class_names)}"
        return (
            f"Stream(name={self.name!r}, head={self.head!r}, tasks={_listed(self.tasks)}, "
            f"tuning={_listed(self.tuning)}, num_classes={self.num_classes}, "
            f"example_shape={self.example_shape}, example_dtype={self.example_dtype!r}{names})"
        )

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]


def _listed(values: Sequence[Any]) -> str:
    """A few values as a list, of more the first and the last."""
    shown = [repr(value) for value in values]
    if len(shown) > _MOST_SHOWN:
        shown = [*shown[: _MOST_SHOWN - 1], f"... {len(shown)} in all ...", shown[-1]]
    return f"[{', '.join(shown)}]"
