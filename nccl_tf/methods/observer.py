"""What looks on while a learner learns, and changes nothing."""

from typing import Any

import tensorflow as tf

from nccl_tf.batch import Batch


class Observer:
    """Sees every step inside its graph, and the end of every task; given to `Learner.observe`."""

    def before_update(self, learner: Any, batch: Batch, replay: Batch | None) -> Any:
        """Called in the graph before a step, with the weights as they are.

        Args:
            learner: The learner.
            batch: The stream batch.
            replay: The memory batch of the step, where it has been drawn already.

        Returns:
            Whatever `after_update` is to receive.
        """

    def after_update(
        self, learner: Any, batch: Batch, values: tf.Tensor, measured: tf.Tensor, noted: Any
    ) -> None:
        """Called in the graph after a step, before the memory is written.

        Args:
            learner: The learner.
            batch: The stream batch, with weights 0 if the step was skipped.
            values: As in `Step`.
            measured: As in `Step`, all 0 if the step was skipped.
            noted: What `before_update` returned.
        """

    def task_ended(self, learner: Any, task_id: int) -> None:
        """Called between steps when a task has ended, and the learner has closed it."""
