"""The base of every method: a Keras model that learns a stream of tasks through `fit`."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Unpack

import keras
import tensorflow as tf

from nccl_tf.batch import Batch, BatchStack, class_numbers
from nccl_tf.learner import growth
from nccl_tf.learner.arguments import LearnerArguments
from nccl_tf.learner.options.stream_mask import as_stream_batch, masked_for_stream
from nccl_tf.learner.single_batches import SingleBatchModel
from nccl_tf.learner.step import (
    LoggedSteps,
    Logits,
    Logs,
    Observer,
    Step,
    one_after_another,
    with_logs,
)
from nccl_tf.learner.step_log import StepLog, StepMeans, running_sum
from nccl_tf.learner.task_model import weighted_mean
from nccl_tf.networks.inspection import check_holds_no_state


class Learner(SingleBatchModel):
    """Learns task after task with mean softmax cross-entropy and one optimizer update per step.

    A step runs in the order of `train_step`. A method overrides one or two of its parts, from the
    smallest: `training_loss`, or `stream_losses`; `learn`, which makes the gradients; `update`,
    which also applies them, for methods that walk; `after_step`; `on_task_begin` and `on_task_end`.

    Inputs are arrays [n, ...] or `{"inputs": inputs, "task": task ids}`, labels are class numbers,
    and a weight of 0 marks an example as padding.

    Args:
        network: Any Keras model from inputs to one logit per class.
        **kwargs: As for `learner.options.average.AveragedModel`.

    Raises:
        UserError: An argument is unknown or out of range.
    """

    cumulative: ClassVar[tuple[str, ...]] = ()
    """Names among `log_names` that are also summed over the run."""

    fixed_classes: ClassVar[str] = ""
    """Why `add_classes` cannot work, as the end of a sentence; empty where it can."""

    def __init__(self, network: keras.Model, **kwargs: Unpack[LearnerArguments]):
        super().__init__(network, **kwargs)
        self.traces = 0
        self.step_log: StepLog | None = None
        self.observer: Observer | None = None
        self._quantity_means = StepMeans(self.log_names[1:])

    def see_first(
        self, first: Callable[[], Any], task_classes: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Called by `fit` before the first step: methods with a memory allocate it.

        Args:
            first: Returns a batch of the data as `train_step` receives it, eager.
            task_classes: The classes of each task, where they are known beforehand.
        """

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step: read the memory, learn, apply one update, write the memory, log.

        A step whose loss or gradient is not finite is skipped and counted: weights, batch-norm
        statistics, memory, optimizer and logs stay as they were before it.
        """
        batch = as_stream_batch(self, data)
        step = self.take_step(batch)
        values = tf.stack(list(step.logs.values()))[None]
        self.log_steps(batch.labels, batch.weights, LoggedSteps(step.logits.masked[None], values))
        return self.get_metrics_result()

    def take_step(self, batch: Batch, update: Callable[[], Step] | None = None) -> Step:
        """`train_step` without what `log_steps` does for many steps at once.

        Args:
            batch: The stream batch.
            update: What learns and applies; `self.update(batch)` by default.
        """
        self.traces += 1
        with self.decayed_rate():
            step, learned = self.observed(batch, update or (lambda: self.update(batch)))
            # Every replica writes what all of them have learned from.
            self.after_step(self.replicas.gather(learned), step)
        return step

    def update(self, batch: Batch) -> Step:
        """Learn a batch and apply the update unless it is not finite; returns the applied step."""
        return self.learn_and_apply(batch)

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        """A plain step on the stream batch: the gradient of `training_loss`."""
        with tf.GradientTape() as tape:
            logits = self.forward(batch, training=True)
            regularization = self.regularization()
            loss, logs = with_logs("training_loss", self.training_loss(logits, batch))
            scaled = self.scaled(loss + regularization)
        return Step(self.gradients(tape, scaled), logits, logs)

    def training_loss(self, logits: Logits, batch: Batch) -> tuple[tf.Tensor, Logs]:
        """The loss of a step on the stream batch alone, and what is logged.

        Args:
            logits: Of the batch.
            batch: The stream batch.

        Returns:
            A scalar, and scalars by the names in `log_names`, with "loss".
        """
        loss = weighted_mean(self.stream_losses(logits, batch), batch.weights)
        return loss, {"loss": loss}

    def stream_losses(self, logits: Logits, batch: Batch) -> tf.Tensor:
        """The training loss of each example of the stream batch, [n]."""
        return self.example_losses(masked_for_stream(logits.masked, batch), batch)

    def after_step(self, batch: Batch, step: Step) -> None:
        """Called in the graph after every step; methods with a memory write it here.

        Args:
            batch: The whole stream batch, with weights 0 if the step was skipped.
            step: The applied step, with the logits of the batch from before the update.
        """

    def can_prefetch_replay(self, stack: BatchStack) -> bool:
        """Whether `train_stack` may read the memory for all steps before the first one."""
        return False

    def train_stack(self, stack: BatchStack, prefetch: bool) -> None:
        """Learn a stack of batches, one after another. Graph code.

        Args:
            stack: The batches.
            prefetch: What `can_prefetch_replay` said.
        """
        count = tf.shape(stack.sizes)[0]
        defers = self.declares("deferred_logs") and self.stream_mask != "seen"  # noted by logs
        if not defers or stack.is_ragged:

            def step(i: tf.Tensor) -> tuple[tf.Tensor]:
                self.train_step(stack.batch(i))
                return (i + 1,)

            tf.while_loop(lambda i: i < count, step, (tf.constant(0),))
            return
        steps = self.take_steps(stack, count, prefetch)
        whole = self.as_batch(stack.flat())
        self.log_steps(whole.labels, whole.weights, steps)

    def take_steps(self, stack: BatchStack, count: tf.Tensor, prefetch: bool) -> LoggedSteps:
        """`take_step` on each batch of a stack."""
        return one_after_another(
            count,
            self.logits_dtype,
            lambda i: self.take_step(as_stream_batch(self, stack.batch(i))),
        )

    @property
    def logits_dtype(self) -> tf.DType:
        """Of masked logits."""
        return tf.float64 if self.network.compute_dtype == "float64" else tf.float32

    def log_steps(self, labels: tf.Tensor, weights: tf.Tensor, steps: LoggedSteps) -> None:
        """Update the metrics and the step log.

        Args:
            labels: [examples, ...], of the stream batches of all steps.
            weights: float32 [examples], 0 for padding.
            steps: What the steps left.
        """
        losses = steps.values[:, 0]
        finite = tf.math.is_finite(losses)
        tracker = self._loss_tracker
        tracker.total.assign(running_sum(tracker.total.value, tf.where(finite, losses, 0.0)))
        tracker.count.assign(running_sum(tracker.count.value, tf.cast(finite, tf.float32)))
        self._quantity_means.update_state(steps.values[:, 1:])
        if self.step_log is not None:
            self.step_log.extend(steps.values, self.tasks_ended.value > 0)
        count = tf.shape(losses)[0]
        weights = tf.reshape(tf.where(finite[:, None], tf.reshape(weights, [count, -1]), 0.0), [-1])
        sizes = enumerate(self.network.output_shape[1:], start=2)
        sides = [size or tf.shape(steps.logits)[axis] for axis, size in sizes]
        logits = tf.reshape(steps.logits, [-1, *sides])
        self.compute_metrics(None, labels, logits, weights)
        if not self.example_loss.has_classes:
            return
        seen = tf.one_hot(class_numbers(labels), self.num_classes, True, False)
        seen = tf.reduce_any(seen & (weights > 0)[:, None], axis=0)
        self.seen_classes.assign(self.seen_classes.value | self.replicas.any(seen))

    def observed(
        self, batch: Batch, update: Callable[[], Step], replay: Batch | None = None
    ) -> tuple[Step, Batch]:
        """Update while the observer looks on, and count whether the step was skipped.

        Args:
            batch: The stream batch.
            update: Learns and applies.
            replay: As in `Observer.before_step`.

        Returns:
            The applied step, and the batch with weights 0 if it was skipped.
        """
        note = self.observer and self.observer.before_step(self, batch, replay)
        step = update()
        skipped = tf.cast(step.is_skipped, tf.int32)
        self.skipped.assign_add(skipped)
        self.skipped_in_a_row.assign((self.skipped_in_a_row.value + skipped) * skipped)
        self.average_step(tf.logical_not(step.is_skipped))
        learned = batch._replace(weights=tf.where(step.is_skipped, 0.0, batch.weights))
        if self.observer is not None:
            self.observer.after_step(self, learned, step, note)
        return step, learned

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Evaluate a batch: mean loss over its real examples, and the compiled metrics."""
        return {k: v for k, v in super().test_step(data).items() if k not in self.log_names[1:]}

    def end_task(self) -> None:
        """Close the open task. Where none is open, nothing changes."""
        task_id, was_open = int(self.task.numpy()), bool(self.task_is_open.numpy())
        super().end_task()
        if was_open and self.observer is not None:
            self.observer.on_task_end(self, task_id)

    def add_classes(self, count: int) -> None:
        """Let the head grow by `count` logits, for classes that were not known of at the start.

        The new classes have the next numbers. Weights, memory, optimizer (slots of new weights are
        zero), metrics and the classes seen stay; new weights are drawn by the last layer's
        initialisers. The next step is traced once. With `heads`, and in a memory that does not list
        them in `task_classes`, the new classes are those of one more task.

        Args:
            count: Number of classes, 1 or more.

        Raises:
            UserError: The network, the method, an observer or replicas leave no way to grow.

        Example:

        ```python
        images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
        labels = np.arange(40) % 2
        memory = nccl_tf.ReservoirMemory(100, (8, 8, 1))
        learner = nccl_tf.ExperienceReplay(nccl_tf.networks.mlp((8, 8, 1), 2), memory)
        learner.compile(keras.optimizers.SGD(0.1))
        learner.fit(images, labels, verbose=0)  # the classes 0 and 1
        learner.add_classes(2)
        learner.fit(images, labels + 2, verbose=0)  # the classes 2 and 3
        ```
        """
        growth.add_classes(self, count)

    def grow_state(self, growth: growth.Growth) -> None:
        super().grow_state(growth)
        growth.per_class(self.seen_classes)

    def forget_graphs(self) -> None:
        """Forget every graph, because variables have other shapes."""
        self.trace_again()
        self.test_function = self.predict_function = self._count = None

    def needs_one_device(self) -> dict[str, bool]:
        """Arguments of the learner that replicas cannot follow, by the name of the argument."""
        return {}

    def state_variables(self) -> dict[str, keras.Variable]:
        """What learning depends on: weights, memory, generators, optimizer and counters.

        The step log, which only looks on, has a state of its own (`StepLog.state`).
        """
        variables = [*self.variables, *self.optimizer.variables]
        return {f"{i:04d} {v.name}": v for i, v in enumerate(variables)}

    def record_steps(self, every: int) -> StepLog:
        """Keep rows of every log over windows of `every` steps; returns the log."""
        rows, before = 64 + self.most_steps_per_call() // max(every, 1), self.step_log
        if before is not None and before.every == every and before.rows >= rows:
            return before
        with self.distribute_strategy.scope():
            log = StepLog(self.log_names, self.cumulative, every, rows)
        if before is not None and before.every == every:
            log.restore(before.state())
        self.step_log = log
        self.trace_again()
        return log

    def observe(self, observer: Observer | None) -> None:
        """Let an observer look on from the next step on; None for nobody.

        Raises:
            UserError: A layer of the network keeps a state between batches.
        """
        if observer is not None:
            check_holds_no_state(self.network, type(observer).__name__)
        if observer is not self.observer:
            self.observer = observer
            self.trace_again()
