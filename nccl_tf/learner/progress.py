"""The progress of a learner: tasks, classes and skipped steps."""

import logging
from collections.abc import Callable

import keras
import tensorflow as tf

from nccl_tf import xla
from nccl_tf.batch import Batch
from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.learner import checks
from nccl_tf.learner.heads import classes_of

LOGGER = logging.getLogger("nccl_tf")


class Progress:
    """Counters of a learner, in variables that are saved with it.

    Args:
        state: Makes variables that are saved with the learner, `Learner.state`.
        outputs: Returns the number of outputs that the head has now.

    Attributes:
        task: int64 scalar, the latest task; -1 before the first.
        task_is_open: bool scalar, whether it has begun and not ended.
        tasks_ended: int64 scalar, tasks that have ended.
        seen_classes: bool [classes], those that training has seen so far, two of one output.
        skipped: int64 scalar, steps that were skipped because they had no finite loss and gradient.
        skipped_in_a_row: int64 scalar, those since the last step that was not.
        left_open: What has left the open task open although nobody asked for it, the subject of a
            sentence; "" where nothing has.
    """

    def __init__(self, state: Callable[..., keras.Variable], outputs: Callable[[], int]) -> None:
        self.task = state("task", (), "int64", -1)
        self.task_is_open = state("task_is_open", (), "bool")
        self.tasks_ended = state("tasks_ended", (), "int64")
        self.seen_classes = state("seen_classes", lambda: (max(outputs(), 2),), "bool")
        self.skipped = state("skipped", (), "int64")
        self.skipped_in_a_row = state("skipped_in_a_row", (), "int64")
        self.left_open = ""
        self._begun: int | None = None

    @property
    def variables(self) -> list[keras.Variable]:
        """All of these variables."""
        return [value for value in vars(self).values() if isinstance(value, keras.Variable)]

    @property
    def next_task(self) -> int:
        """The task that `fit` learns by default: the open one, else the one after the last."""
        return int(self.task.numpy()) + (not bool(self.task_is_open.numpy()))

    def begin_task(self, task_id: int) -> bool:
        """Begin a task.

        Returns:
            Whether it was not open before.

        Raises:
            UserError: Another task is open.
        """
        is_open, current = bool(self.task_is_open.numpy()), int(self.task.numpy())
        if is_open and current != task_id:
            raise UserError(
                f"received the beginning of task {task_id} while task {current} is open: call "
                "end_task() first, or fit without end_task=False"
            )
        self._begun = task_id
        if not is_open:
            self.task.assign(task_id)
            self.task_is_open.assign(True)
        return not is_open

    def close_task(self) -> None:
        """Close the open task, which counts as ended after that."""
        self.task_is_open.assign(False)
        self._begun, self.left_open = None, ""

    def check_task(self) -> None:
        """Check that the task that was begun is open still, whatever has been loaded since.

        Raises:
            UserError: The state of another task has, or one after its end.
        """
        task, is_open = int(self.task.numpy()), bool(self.task_is_open.numpy())
        if (task if is_open else None) != self._begun:
            raise UserError(
                f"a callback has loaded the state of task {task}, which "
                f"{'is open' if is_open else 'has ended'} there, in the midst of task "
                f"{self._begun}: give the fit of each task a folder of its own, such as "
                f'BackupAndRestore("backup/{self._begun}"), or take nccl_tf.learn(model, stream, '
                'backup_dir="backup"), which resumes where it was stopped'
            )

    def warn_of_open_task(self) -> None:
        """Warn that a task is open which nobody has asked to leave open."""
        if self.left_open and bool(self.task_is_open.numpy()):
            LOGGER.warning(
                "task %d goes on, which %s has left open: examples that come again are learned and "
                "stored once more; call end_task() before the next task, or build the learner anew "
                "to begin again",
                int(self.task.numpy()), self.left_open,
            )  # fmt: skip
        self.left_open = ""

    def see(self, batch: Batch) -> None:
        """Count the classes of a batch, but for padding, among those seen so far. Graph code."""
        now = classes_of(batch, self.seen_classes.shape[0])
        self.seen_classes.assign(self.seen_classes.value | now)

    def seen_among(self, outputs: int) -> tf.Tensor:
        """bool [outputs]: which of the classes were seen that outputs are for, one each."""
        seen = self.seen_classes.value
        return seen if seen.shape[0] == outputs else seen[:outputs]

    def has_not_failed(self) -> tf.Tensor:
        """bool scalar: whether learning has not failed. Graph code."""
        return self.skipped_in_a_row.value < checks.SKIPS_IN_A_ROW

    def count_step(self, is_learned: tf.Tensor, alone: bool) -> None:
        """Count a step where it was skipped. Graph code.

        Args:
            is_learned: bool scalar, whether it was not.
            alone: Whether one device takes the step, no replicas beside it.
        """

        def begin_row() -> None:
            self.skipped_in_a_row.assign(0)

        def add() -> None:
            self.skipped.value.assign_add(1)
            self.skipped_in_a_row.value.assign_add(1)

        if alone and not xla.in_program():
            tf.cond(is_learned, begin_row, add)  # fewer kernels than a sum
            return
        skipped = tf.cast(tf.logical_not(is_learned), tf.int64)
        self.skipped.value.assign_add(skipped)
        self.skipped_in_a_row.assign((self.skipped_in_a_row.value + skipped) * skipped)

    def reset_skips_in_a_row(self) -> None:
        """Begin a new row of skipped steps: one ends with the training that it occurs in."""
        self.skipped_in_a_row.assign(0)

    def check_not_failed(self, network: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        """Check that not too many steps in a row were skipped.

        Args:
            network: That learns.
            optimizer: Its optimizer.

        Raises:
            LearningFailedError: Ten were not finite, or a weight is not.
        """
        if int(self.skipped_in_a_row.numpy()) < checks.SKIPS_IN_A_ROW:
            return
        checks.check_weights(network)
        self.reset_skips_in_a_row()
        rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
        raise LearningFailedError(
            f"{checks.SKIPS_IN_A_ROW} steps in a row had no finite loss and gradient, at the "
            f"learning rate {rate:g}, and nothing is learned from them: look for NaN, infinity and "
            "values far above 1 in the inputs or take a lower rate; the next fit continues from "
            "the last finite step"
        )
