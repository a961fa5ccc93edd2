"""The tasks of a stream, and their union for joint training."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.batches import IndexedBatches, Order, count_steps, pad_order
from nccl_tf.streams.seeding import BATCH_ORDER, JOINT_ORDER, generator

if TYPE_CHECKING:
    import tensorflow as tf


class _Trained:
    """Training examples as batches: those of a task, or of several.

    Attributes:
        class_names: The names of all classes of the stream by their numbers; none where it has
            none.
        positive: The name of class 1, as `Stream.positive`.
        joins_tasks: Whether they are those of all tasks so far, and so are its batches.
    """

    num_train: int
    joins_tasks = False
    class_names: tuple[str, ...] = ()
    positive: str | None = None

    def steps(self, batch_size: int = 10, passes: int = 1) -> int:
        """Number of batches in `passes` passes over the training examples.

        Raises:
            UserError: The batch size or the number of passes is below 1.
        """
        return count_steps(self.num_train, batch_size, passes)

    def train_batches(
        self, batch_size: int = 10, seed: int = 0, passes: int = 1, skip: int = 0
    ) -> "tf.data.Dataset":
        """The training examples in random order, in batches of a fixed shape.

        The order of a pass depends on its number, the seed and the task alone. The last batch of a
        pass is padded by repeating its examples with weight 0.

        Args:
            batch_size: Examples in a batch.
            seed: Seed of the order, >= 0.
            passes: Number of passes over the examples. To a `fit` of the dataset they are one, of
                which a memory stores all: `fit(task, epochs=...)` knows them apart.
            skip: Number of batches to skip at the beginning, to resume a pass.

        Returns:
            Dataset of `steps(batch_size, passes) - skip` elements ({"inputs": [B, ...], "task":
            int32 [B]}, labels [B, ...], weight float32 [B]), of the dtypes of `train`.

        Raises:
            UserError: The batch size or the number of passes is below 1, or the seed negative.
        """
        steps = self.steps(batch_size, passes)

        def order(_: int) -> tuple[np.ndarray, ...]:
            parts = (pad_order(self._order(seed, number), batch_size) for number in range(passes))
            joined = map(np.concatenate, zip(*parts, strict=True))
            return tuple(part[skip * batch_size :] for part in joined)

        return self._batches(batch_size, max(steps - skip, 0), order).dataset()

    def epochs(self, batch_size: int = 10, seed: int = 0, epochs: int = 1) -> IndexedBatches:
        """The same batches for a `fit` of several epochs, each pass in an epoch of its own.

        Args:
            batch_size: Examples in a batch.
            seed: Seed of the order, >= 0.
            epochs: Number of epochs.

        Raises:
            UserError: The batch size or the number of epochs is below 1, or the seed negative.
        """
        count = self.steps(batch_size, epochs) // epochs
        generator(seed, BATCH_ORDER)  # which refuses a seed that is none

        def order(epoch: int) -> tuple[np.ndarray, ...]:
            return pad_order(self._order(seed, epoch), batch_size)

        return self._batches(batch_size, count, order)

    def _batches(self, batch_size: int, count: int, order: Order) -> IndexedBatches:
        batches = IndexedBatches.padded(*self._examples(), batch_size, count, order)
        batches.joins_tasks = self.joins_tasks
        return batches

    def _examples(self) -> tuple[Examples, int | np.ndarray]:
        """The training examples, and the id of their task, or of the task of each."""
        raise NotImplementedError

    def _order(self, seed: int, number: int) -> np.ndarray:
        """The order of the examples in a pass."""
        raise NotImplementedError


class Task(_Trained):
    """One task: its classes and its examples, which are made on demand.

    Args:
        task_id: Position in the stream, from 0.
        classes: Global numbers of the task's classes; none where targets are no classes.
        num_train: Number of training examples.
        train: Returns the training examples; called at every use, so that a long stream holds none
            of them in memory.
        test: Returns the test examples; called at every use.
        validation: Returns the validation examples, likewise; None where there are none.

    Example:

    ```python
    task = nccl_tf.load_stream("split_digits")[0]
    images, labels = task.train
    batches = task.train_batches(batch_size=10, seed=0)  # for `learner.fit`
    ```
    """

    def __init__(
        self,
        task_id: int,
        classes: tuple[int, ...],
        num_train: int,
        train: Callable[[], Examples],
        test: Callable[[], Examples],
        validation: Callable[[], Examples] | None = None,
    ) -> None:
        self.task_id = task_id
        self.classes = classes
        self.num_train = num_train
        self._train = train
        self._test = test
        self._validation = validation

    @property
    def train(self) -> Examples:
        """Training examples, such as uint8 images [n, h, w, c] and int32 labels [n]."""
        return self._train()

    @property
    def test(self) -> Examples:
        """Test examples, such as uint8 images [n, h, w, c] and int32 labels [n]."""
        return self._test()

    @property
    def validation(self) -> Examples | None:
        """Validation examples of `Stream.with_validation`, which are not trained on, or None."""
        return None if self._validation is None else self._validation()

    def _examples(self) -> tuple[Examples, int]:
        return self.train, self.task_id

    def _order(self, seed: int, number: int) -> np.ndarray:
        return generator(seed, BATCH_ORDER, self.task_id, number).permutation(self.num_train)

    def test_batches(self, batch_size: int = 500) -> "tf.data.Dataset":
        """The test examples in file order, with elements like those of `train_batches`.

        Raises:
            UserError: The batch size is below 1.
        """
        return self.tested(batch_size).dataset()

    def tested(self, batch_size: int = 500) -> IndexedBatches:
        """The same batches without a dataset."""
        test = self.test
        count = count_steps(len(test.labels), batch_size, 1)
        padded = pad_order(np.arange(len(test.labels)), batch_size)
        return IndexedBatches.padded(test, self.task_id, batch_size, count, lambda _: padded)

    def __repr__(self) -> str:
        return f"Task(task_id={self.task_id}, classes={self.classes}, num_train={self.num_train})"


class JointTask(_Trained):
    """The union of the training examples of several tasks, each with the id of its task.

    The images of all tasks are in memory while batches are made: 157 MB for 20 tasks of 10,000
    images of 28x28.

    Args:
        tasks: The tasks, in the order of their ids.
        task_id: The number of the training, by which `fit` knows it: 0 where all tasks are learned
            at once, the last task's where they are learned with those before.

    Raises:
        UserError: `tasks` is empty.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits")
    batches = nccl_tf.JointTask(stream.tasks).train_batches(batch_size=10)
    ```
    """

    joins_tasks = True

    def __init__(self, tasks: Sequence[Task], task_id: int = 0) -> None:
        if not tasks:
            raise UserError("received no tasks: expected at least one task to learn jointly")
        self.tasks, self.task_id = tuple(tasks), task_id
        self.num_train = sum(task.num_train for task in self.tasks)
        self.class_names, self.positive = self.tasks[0].class_names, self.tasks[0].positive

    @property
    def validation(self) -> Examples | None:
        """Validation examples of all tasks, whose inputs are named "inputs", beside "task", the
        id of each one's task; None where a task has none."""
        parts = [part for task in self.tasks if (part := task.validation) is not None]
        if len(parts) < len(self.tasks):
            return None
        known = [part.named_like(parts[0]) for part in parts]
        columns = map(np.concatenate, zip(*(part.columns() for part in known), strict=True))
        union = known[0].map(lambda _: next(columns))
        ids = np.repeat([task.task_id for task in self.tasks], [len(p.labels) for p in known])
        return Examples({"inputs": union.inputs, "task": ids}, union.labels)

    def _order(self, seed: int, number: int) -> np.ndarray:
        return generator(seed, JOINT_ORDER, number).permutation(self.num_train)

    def _examples(self) -> tuple[Examples, np.ndarray]:
        sizes = [task.num_train for task in self.tasks]
        return self._union(), np.repeat([task.task_id for task in self.tasks], sizes)

    def _union(self) -> Examples:
        # Copied task by task, so that only one task's examples are in memory twice.
        columns: list[np.ndarray] = []
        start = 0
        first: Examples | None = None
        for task in self.tasks:
            train = task.train
            first = first or train.take(np.arange(0))
            train = train.named_like(first)
            rows = slice(start, start + task.num_train)
            for i, part in enumerate(train.columns()):
                if not start:
                    columns.append(np.empty((self.num_train, *part.shape[1:]), part.dtype))
                # Texts of one task may be longer than those before.
                dtype = np.promote_types(columns[i].dtype, part.dtype)
                columns[i] = columns[i].astype(dtype, copy=False)
                columns[i][rows] = part
            start += task.num_train
        filled = iter(columns)
        return train.map(lambda _: next(filled))


def training_parts(
    tasks: Sequence[Task], *, joint: bool = False, joins: bool = False
) -> list[Task] | list[JointTask]:
    """The parts to train on in turn: the tasks, their union, or at each task all so far.

    Args:
        tasks: The tasks of a stream in order.
        joint: Whether all are learned at once.
        joins: Whether each is learned with those before it.
    """
    if joint:
        return [JointTask(tasks)]
    if joins:
        return [JointTask(tasks[: i + 1], task.task_id) for i, task in enumerate(tasks)]
    return list(tasks)


def bytes_of_examples(tasks: Sequence[Task]) -> int:
    """The bytes of the training examples of tasks: inputs, labels and the id of each one's task."""
    return sum(
        sum(column.nbytes for column in task.train.columns()) + 4 * task.num_train for task in tasks
    )


def classes_by_number(tasks: Sequence[Task]) -> list[list[int]]:
    """The classes of each task at the place of its `task_id`: tasks may come in another order.

    A number that no task has gets one class of another, because a memory takes no empty ones.
    """
    classes: dict[int, list[int]] = {}
    for task in tasks:
        known = classes.setdefault(task.task_id, [])
        known += [label for label in task.classes if label not in known]
    return [
        classes.get(number, classes[tasks[0].task_id][:1]) for number in range(max(classes) + 1)
    ]
