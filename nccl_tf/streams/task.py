"""One task of a stream."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.batches import count_steps, make_batches
from nccl_tf.streams.seeding import BATCH_ORDER, JOINT_ORDER, generator

if TYPE_CHECKING:
    import tensorflow as tf


class Task:
    """One task: its classes and its examples, produced when they are asked for.

    Args:
        task_id: Position in the stream, from 0.
        classes: Global numbers of the task's classes.
        num_train: Number of training examples.
        train: Returns the training examples; called at every use, so that a stream of many tasks
            keeps none of them.
        test: Returns the test examples; called at every use.
    """

    def __init__(
        self,
        task_id: int,
        classes: tuple[int, ...],
        num_train: int,
        train: Callable[[], Examples],
        test: Callable[[], Examples],
    ) -> None:
        self.task_id = task_id
        self.classes = classes
        self.num_train = num_train
        self._train = train
        self._test = test

    @property
    def train(self) -> Examples:
        """Training examples: uint8 images [n, h, w, c] and int32 labels [n]."""
        return self._train()

    @property
    def test(self) -> Examples:
        """Test examples: uint8 images [n, h, w, c] and int32 labels [n]."""
        return self._test()

    def steps(self, batch_size: int = 10, passes: int = 1) -> int:
        """Number of batches in `passes` passes over the training examples.

        Raises:
            UserError: The batch size or the number of passes is below 1.
        """
        return count_steps(self.num_train, batch_size, passes)

    def train_batches(
        self, batch_size: int = 10, seed: int = 0, passes: int = 1, skip: int = 0
    ) -> "tf.data.Dataset":
        """The training examples in random order, in batches of one fixed shape.

        The order of a pass depends on (seed, task_id, pass) alone. The last batch of a pass is
        padded by repeating its examples with weight 0. `skip` batches are left out at the
        beginning, for a run that goes on in the middle.

        Returns:
            Dataset of `steps(batch_size, passes) - skip` elements ({"inputs": uint8 [B, h, w, c],
            "task": int32 [B]}, label int32 [B], weight float32 [B]).

        Raises:
            UserError: The batch size or the number of passes is below 1, or the seed negative.
        """
        self.steps(batch_size, passes)
        orders = (
            generator(seed, BATCH_ORDER, self.task_id, number).permutation(self.num_train)
            for number in range(passes)
        )
        return make_batches(self.train, self.task_id, orders, batch_size, skip)

    def test_batches(self, batch_size: int = 500) -> "tf.data.Dataset":
        """The test examples in file order, in elements as those of `train_batches`.

        Raises:
            UserError: The batch size is below 1.
        """
        test = self.test
        return make_batches(test, self.task_id, [np.arange(len(test.labels))], batch_size)

    def __repr__(self) -> str:
        return f"Task(task_id={self.task_id}, classes={self.classes}, num_train={self.num_train})"


if TYPE_CHECKING:
    import tensorflow as tf


class JointTask:
    """The union of the training examples of several tasks, each example with its own task.

    The images of all tasks are held at once while batches are made: 157 MB for 20 tasks of 10,000
    images of 28x28.

    Args:
        tasks: The tasks, in the order of their ids.

    Raises:
        UserError: There is no task.
    """

    task_id = 0

    def __init__(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            raise UserError("received no tasks: expected at least one task to learn jointly")
        self.tasks = tuple(tasks)
        self.num_train = sum(task.num_train for task in self.tasks)

    def steps(self, batch_size: int = 10, passes: int = 1) -> int:
        """Number of batches in `passes` passes over the training examples of all tasks.

        Raises:
            UserError: The batch size or the number of passes is below 1.
        """
        return count_steps(self.num_train, batch_size, passes)

    def train_batches(
        self, batch_size: int = 10, seed: int = 0, passes: int = 1, skip: int = 0
    ) -> "tf.data.Dataset":
        """The examples of all tasks in random order, in elements as those of a `Task`.

        The order of a pass depends on (seed, pass) alone. `skip` batches are left out at the
        beginning.

        Raises:
            UserError: The batch size or the number of passes is below 1, or the seed negative.
        """
        self.steps(batch_size, passes)
        orders = (
            generator(seed, JOINT_ORDER, number).permutation(self.num_train)
            for number in range(passes)
        )
        sizes = [task.num_train for task in self.tasks]
        ids = np.repeat([task.task_id for task in self.tasks], sizes)
        return make_batches(self._union(), ids, orders, batch_size, skip)

    def _union(self) -> Examples:
        # Filled task by task, so that no task's images are held twice but the one being copied.
        images: Any = None
        labels: Any = None
        start = 0
        for task in self.tasks:
            train = task.train
            if images is None:
                images = np.empty((self.num_train, *train.inputs.shape[1:]), train.inputs.dtype)
                labels = np.empty(self.num_train, np.int32)
            images[start : start + task.num_train] = train.inputs
            labels[start : start + task.num_train] = train.labels
            start += task.num_train
        return Examples(images, labels)
