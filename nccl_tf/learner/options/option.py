"""The base of options."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar

import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.learner.columns import Column
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.step import Logits, Step


class Option:
    """Something that changes or watches the steps of any learner; `learner.add_option` adds it.

    It is given what it needs when it is made, such as `learner.state` for variables that are saved
    with the learner. An option overrides what it has a part in; by default nothing happens. The
    one that was added last sees a step's beginning first, and its end last.
    """

    columns: ClassVar[Mapping[str, Column]] = MappingProxyType({})
    """Its entries for an example in the memory, as `Learner.columns`."""
    on_replicas: ClassVar[bool] = True
    """Whether it runs on several replicas."""
    task_pass: ClassVar[tuple[str, ...]] = ()
    """When a task's examples are passed for its `task_sums`: "begin", before the first step, "end",
    after the last one, or both. `fit` passes what it was given, and `learn` the task."""
    rows_at_once: ClassVar[int] = 1
    """Examples whose `task_rows` are put together, at least, before they are summed."""
    has_passed: bool = False
    """Whether the examples of the open task have been passed after its last step."""

    def on_compile(self, optimizer: Any, loss: ExampleLoss) -> None:
        """Called when the learner is compiled.

        Raises:
            UserError: The option has no meaning for the optimizer or the loss.
        """

    def stream_batch(self, batch: Batch) -> Batch:
        """The stream batch as the step shall see it. Graph code."""
        return batch

    def before_step(self, batch: Batch) -> Any:
        """Called in the graph before a step, with the weights as they are.

        Args:
            batch: The stream batch.

        Returns:
            Anything; `after_step` receives it.
        """

    def loss(self, losses: tf.Tensor, logits: Logits, replay: Batch) -> tf.Tensor:
        """The training loss of each example of a memory batch, [n]. Graph code.

        Args:
            losses: Without this option.
            logits: Of the batch.
            replay: The memory batch.
        """
        return losses

    def after_step(self, batch: Batch, step: Step, note: Any) -> None:
        """Called in the graph after a step, before the memory is written.

        Args:
            batch: The stream batch, with weights 0 if the step was skipped.
            step: The applied step.
            note: The result of `before_step`.
        """

    def applying(self) -> AbstractContextManager[None]:
        """A context in which the optimizer applies an update. Graph code."""
        return nullcontext()

    def on_task_begin(self, task_id: int) -> None:
        """Called when a task has been opened, before the method's own `on_task_begin`."""

    def task_rows(self, batch: Batch, when: str) -> Any:
        """What `task_sums` takes of the examples of a batch. Graph code.

        Args:
            batch: Of the task; padding, and an example with NaN in its inputs, has weight 0.
            when: "begin" or "end".

        Returns:
            Tensors [n, ...], in any structure; by default the batch.
        """
        return batch

    def task_sums(self, rows: Any, when: str) -> Any:
        """Tensors that are summed over a pass of the task. Graph code.

        Args:
            rows: Of `task_rows`, of one batch or of several.
            when: "begin" or "end".

        Returns:
            Tensors of fixed shapes, in any structure; `tf.IndexedSlices` for sums at some places.
        """

    def on_task_pass(self, when: str, sums: Any) -> None:
        """Called after a pass, between steps; at "end" the task is still open.

        Args:
            when: "begin" or "end".
            sums: Of `task_sums` over all batches, as NumPy arrays; None where there was no batch.
        """

    def on_task_end(self, task_id: int) -> None:
        """Called between steps when a task has ended, and the learner has closed it."""

    def evaluating(self) -> AbstractContextManager[None]:
        """A context in which the learner is evaluated and predicts."""
        return nullcontext()

    def check(self, done: str) -> None:
        """Check that something may be done with the learner now.

        Args:
            done: "trained", "saved" or "grown".

        Raises:
            UserError: It may not.
        """

    def get_config(self) -> dict[str, Any]:
        """The arguments of the learner that make this option, by name."""
        return {}


def config_of(options: Iterable[Option]) -> dict[str, Any]:
    """The arguments of a learner's constructor that have made its options, by name."""
    return {name: value for option in options for name, value in option.get_config().items()}
