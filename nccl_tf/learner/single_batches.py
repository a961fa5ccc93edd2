"""Keras's verbs for a single batch: `train_on_batch`, `test_on_batch` and `predict_on_batch`."""

from typing import Any

import tensorflow as tf

from nccl_tf.errors import LearningFailedError
from nccl_tf.learner.fitted_model import FittedModel
from nccl_tf.learner.fitting.fit_checks import check_learns
from nccl_tf.learner.fitting.input_checks import explained_inputs


class SingleBatchModel(FittedModel):
    """Learns, evaluates and predicts a batch in one call."""

    def train_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        class_weight: Any = None,
        return_dict: bool = False,
        *,
        task_id: int | None = None,
    ) -> Any:
        """Learn one batch of the open task, which stays open until `end_task`.

        Args:
            x: As for `keras.Model.train_on_batch`, or `{"inputs": inputs, "task": task ids}`.
            y: Labels.
            sample_weight: As for `fit`.
            class_weight: As for `fit`.
            return_dict: Whether to return a dictionary by name in place of a list.
            task_id: As for `fit`: by default the open task, else the one after the last, which
                then begins.

        Returns:
            As in Keras: loss and metrics of this batch.

        Raises:
            UserError: As for `fit`, and on replicas.
            LearningFailedError: As for `fit`.
        """
        self.check_holds_plain_weights("trained")
        self._assert_compile_called("train_on_batch")
        self.replicas.check_learns_a_batch()
        self.check_trainable()
        task_id = self.next_task() if task_id is None else task_id
        table = self.class_table()
        if y is not None:
            tasks = x.get("task", task_id) if isinstance(x, dict) else task_id
            self.check_labels(y, tasks, sample_weight, table)
        self._expected = task_id, table
        try:
            with explained_inputs(self.network, x):
                self.begin_task(task_id)
                self.check_rate()
                logs = super().train_on_batch(x, y, sample_weight, class_weight, return_dict)
        finally:
            self._expected = None
        try:
            check_learns(self)
        except LearningFailedError:
            self.skipped_in_a_row.assign(0)
            raise
        return logs

    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
        *,
        task_id: int | None = None,
    ) -> Any:
        """The loss and the compiled metrics of one batch.

        The arguments are those of `evaluate`.

        Raises:
            UserError: As for `evaluate`.
        """
        self._assert_compile_called("test_on_batch")
        with explained_inputs(self.network, x):
            count = len(tf.nest.flatten(x)[0])
        return self.evaluate(
            x, y, batch_size=count, sample_weight=sample_weight, return_dict=return_dict,
            verbose=0, task_id=task_id,
        )  # fmt: skip

    def predict_on_batch(self, x: Any, *, task_id: int | None = None) -> Any:
        """Logits [n, classes] of one batch, as `predict` gives them.

        Args:
            x: As for `predict`.
            task_id: As for `predict`.

        Raises:
            UserError: As for `predict`.
        """

        def by_keras() -> Any:
            if task_id is not None:
                self.check_head(task_id)
            with explained_inputs(self.network, x), self._naming(task_id):
                return super(SingleBatchModel, self).predict_on_batch(x)

        return self.replicas.predict_batch(self, x, task_id, by_keras)
