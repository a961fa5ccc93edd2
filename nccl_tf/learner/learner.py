"""The base of every method: a Keras model that learns a stream of tasks through `fit`."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, as_batch
from nccl_tf.learner import replica_fit, replicas
from nccl_tf.learner.dense_gradients import RowDirection
from nccl_tf.learner.step import Observer, Outcome
from nccl_tf.learner.step_log import StepLog, StepQuantities
from nccl_tf.learner.task_model import TaskModel
from nccl_tf.learner.train_loop import (
    StepLoop,
    fast_steps,
    whole_calls,
)

SKIPS_IN_A_ROW = 10
"""After so many steps in a row without a finite loss and gradient, learning has failed."""


class Step(NamedTuple):
    """What a method makes of a batch, before the update is applied.

    Attributes:
        direction: A tensor per trainable variable, what the optimizer receives.
        logits: [n, classes], of the stream batch, masked.
        values: float32 [quantities], in the order of `Learner.quantities`.
        measured: float32 [quantities], 1 where the step measured the quantity, else 0.
        state: What the method's own variables become if the step is applied; see `apply_step`.
    """

    direction: list[tf.Tensor]
    logits: tf.Tensor
    values: tf.Tensor
    measured: tf.Tensor
    state: Any = ()


class Learner(TaskModel):
    """Learns task after task with mean softmax cross-entropy and one optimizer update per step.

    A subclass says in `learn` what direction a step takes. The base owns the rest: the update, what
    is measured, the loop, and what `TaskModel` has of heads, tasks and evaluation.

    Inputs are arrays [n, ...] or `{"inputs": inputs, "task": task ids}`, labels are class numbers,
    and a weight of 0 marks an example as padding.

    Args:
        network: Any Keras model from inputs to one logit per class.
        **kwargs: `heads`, `mask` and `seed`, as for `TaskModel`, and those of `keras.Model`.

    Raises:
        UserError: `mask` is unknown, or a head names a class that the network has no logit for.
    """

    quantities: ClassVar[tuple[str, ...]] = ("loss",)
    """Names of what a step measures."""
    cumulative: ClassVar[tuple[str, ...]] = ()
    """Those that are also summed over the run."""
    train_function: Callable[..., Any] | None
    steps_per_execution: int
    on_replicas: ClassVar[bool] = False
    """Whether the method can run on several replicas, under a tf.distribute strategy."""

    def __init__(self, network: keras.Model, **kwargs: Any):
        super().__init__(network, **kwargs)
        if self.replicas is not None:
            replicas.check_learner(self)
        self.skipped = self._state("skipped", (), "int32", 0)
        self.skipped_in_a_row = self._state("skipped_in_a_row", (), "int32", 0)
        self.traces = 0
        self.step_log: StepLog | None = None
        self.observer: Observer | None = None
        self._quantity_means = StepQuantities(self.quantities[1:])
        self._jit = False
        self._descends = False

    def learn(self, batch: Batch) -> Step:
        """The direction of one step on a stream batch. Graph code; it applies nothing."""
        raise NotImplementedError

    def end_task(self) -> None:
        """Close the open task. Where none is open, nothing changes."""
        task_id, was_open = int(self.task.numpy()), bool(self.task_is_open.numpy())
        super().end_task()
        if was_open and self.observer is not None:
            self.observer.task_ended(self, task_id)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Evaluate a batch: mean loss over its real examples, and the compiled metrics."""
        logs = super().test_step(data)
        return {name: value for name, value in logs.items() if name not in self.quantities[1:]}

    def fit(
        self, *args: Any, task_id: int | None = None, end_task: bool = True, **kwargs: Any
    ) -> Any:
        """Learn one task: `keras.Model.fit` between `begin_task` and `end_task`.

        Args:
            *args: As for `keras.Model.fit`.
            task_id: The task's number; by default the open task, else the one after the last.
            end_task: False leaves the task open, for another `fit` to go on with it.
            **kwargs: As for `keras.Model.fit`.

        Returns:
            The `keras.callbacks.History` of this fit.

        Raises:
            ValueError: As for `begin_task`.
        """
        if task_id is None:
            task_id = int(self.task.numpy()) + (not bool(self.task_is_open.numpy()))
        self.begin_task(task_id)
        self._choose_steps(kwargs.get("steps_per_epoch"))
        if replica_fit.is_needed(self):
            history = replica_fit.fit(self, *args, **kwargs)
        else:
            self.make_train_function()
            if isinstance(self.train_function, StepLoop):
                # A subclass with a `train_step` of its own gets batch after batch.
                own = type(self).train_step is not Learner.train_step
                self.train_function.feed(None if own else args[0] if args else kwargs.get("x"))
            history = super().fit(*args, **kwargs)
        if end_task:
            self.end_task()
        return history

    def compile(
        self,
        optimizer: Any = "sgd",
        metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int | None = None,
        jit_compile: bool = False,
        auto_scale_loss: bool = True,
    ) -> None:
        """Choose optimizer and metrics; the loss is the method's own.

        Args:
            optimizer: A Keras optimizer; with `keras.optimizers.SGD` the update is the paper's.
            metrics: List of Keras metrics or their names; padding never counts.
            run_eagerly: As in Keras.
            steps_per_execution: Steps in one call of the graph; None for a number that is fast (50
                with convolutions, else 200, or the largest divisor of `fit`'s steps_per_epoch up to
                it; 1 on several replicas).
                Batch callbacks are called once for each call of the graph, with the number of its
                last step and the means so far, as in Keras.
            jit_compile: Compile gradients and update with XLA. The memory stays outside, because a
                write inside an XLA cluster copies every slot.
            auto_scale_loss: As in Keras.
        """
        # Keras counts padded examples in `metrics`; in `weighted_metrics` their weight 0 tells.
        super().compile(
            optimizer=optimizer,
            weighted_metrics=[_metric(metric) for metric in metrics or []],
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution or fast_steps(self.network),
            jit_compile=False,
            auto_scale_loss=auto_scale_loss,
        )
        if self.replicas is not None:
            replicas.prepare(self, jit_compile)
        # Built here, because a first step that creates variables is traced twice.
        self.optimizer.build(self.trainable_variables)
        self._jit = bool(jit_compile)
        self._descends = type(self).apply is Learner.apply and descends_plainly(self)
        self._compile_arguments = {
            "metrics": metrics,
            "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution,
            "jit_compile": jit_compile,
            "auto_scale_loss": auto_scale_loss,
        }

    def get_compile_config(self) -> dict[str, Any]:
        """What `compile` received, for saving."""
        arguments = {"optimizer": self.optimizer, **self._compile_arguments}
        return keras.saving.serialize_keras_object(arguments)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as the saved model was."""
        self.compile(**keras.saving.deserialize_keras_object(config))

    def make_train_function(self, force: bool = False) -> None:
        """As in Keras, with a loop of our own where there is one device and a graph."""
        if self.train_function is not None and not force:
            return
        if self.run_eagerly or self.replicas is not None:
            super().make_train_function(force)
        else:
            self.train_function = StepLoop(self, self.steps_per_execution)

    def _choose_steps(self, steps_per_epoch: int | None) -> None:
        asked = self._compile_arguments["steps_per_execution"]
        if self.run_eagerly or (asked is None and self.replicas is not None):
            steps = 1
        else:
            steps = asked or whole_calls(fast_steps(self.network), steps_per_epoch)
        if steps != self.steps_per_execution:
            self.steps_per_execution = steps
            self.train_function = None

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step: read the memory, learn, apply one update, write the memory, measure.

        A step whose loss or gradient is not finite is skipped and counted: weights, batch-norm
        statistics, memory, optimizer and measurements stay as they were before it.
        """
        batch, outcome = as_batch(data, self.task.value), self.take_step(data)
        one = Outcome(*(part[None] for part in outcome))
        self.measure(batch.labels[None], batch.weights[None], one)
        return self.get_metrics_result()

    def take_step(self, data: Any) -> Outcome:
        """`train_step` without what `measure` does for many steps at once."""
        self.traces += 1
        batch = as_batch(data, self.task.value)
        # A draw from memory waits for the batch: at the end of a stream of unknown length there is
        # none, and nothing may have moved.
        with tf.control_dependencies([batch.labels]):
            outcome = self._observed(batch, lambda: self.update(batch))
        learned = batch._replace(weights=outcome.counted(batch.weights))
        # Every replica writes what all of them have learned from.
        whole = learned if self.replicas is None else replicas.gathered(learned)
        self.after_update(whole)
        if self.replicas is not None:
            self._see(whole.labels, whole.weights)
        return outcome

    def looks_ahead(self, chunk: Any) -> bool:
        """Whether `take_steps_ahead` does what `take_step` on each batch of a chunk would."""
        del chunk
        return False

    def take_steps_ahead(self, chunk: Any) -> Outcome:
        """`take_step` on each batch of a chunk, by a method that draws for all of them before."""
        raise NotImplementedError

    def outcome_dtypes(self) -> Outcome:
        """The dtype of each part of what `take_step` returns."""
        return Outcome(self._logits_dtype, tf.float32, tf.float32)

    @property
    def _logits_dtype(self) -> tf.DType:
        return tf.float64 if self.network.compute_dtype == "float64" else tf.float32

    def measure(self, labels: tf.Tensor, weights: tf.Tensor, steps: Outcome) -> None:
        """Update the metrics, the step log and the classes seen so far.

        Args:
            labels: [steps, n], of the stream batches.
            weights: float32 [steps, n], 0 for padding.
            steps: What the steps left, along one more leading dimension.
        """
        losses = steps.values[:, 0]
        finite = tf.math.is_finite(losses)
        losses = tf.where(finite, losses, 0.0)
        self._loss_tracker.update_state(losses, sample_weight=tf.cast(finite, tf.float32))
        self._quantity_means.update_state(steps.values[:, 1:], steps.measured[:, 1:])
        if self.step_log is not None:
            self.step_log.extend(steps.values, steps.measured, self.tasks_ended.value > 0)
        weights = tf.reshape(steps.counted(weights), [-1])
        labels = tf.reshape(tf.cast(labels, tf.int32), [-1])
        if self.replicas is None:
            self._see(labels, weights)
        logits = tf.reshape(steps.logits, [-1, steps.logits.shape[-1]])
        self.compute_metrics(None, labels, logits, weights)

    def _see(self, labels: tf.Tensor, weights: tf.Tensor) -> None:
        seen = tf.one_hot(labels, self.num_classes, on_value=True, off_value=False)
        seen = tf.reduce_any(seen & (weights > 0)[:, None], axis=0)
        self.seen_classes.assign(self.seen_classes.value | seen)

    def update(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Learn a batch and apply the update.

        Returns:
            logits, values and measured of `Step`; values[0], the loss, is not finite where the
            step was skipped.
        """
        return self._learn_and_apply(batch)

    def after_update(self, batch: Batch) -> None:
        """Called in the graph after the update; replay methods write their memory here."""

    def learn_stream(self, batch: Batch) -> Step:
        """A plain step on the stream batch: the direction is g_J."""
        with tf.GradientTape() as tape:
            logits = self.logits(batch, training=True)
            loss = self.mean_loss(logits, batch)
            scaled = self.scaled(loss + self.regularization())
        return self.step(self.gradients(tape, scaled), logits, {"loss": loss})

    def step(
        self, direction: list[tf.Tensor], logits: tf.Tensor, measured: dict[str, tf.Tensor]
    ) -> Step:
        """A `Step` from scalars by name, or from vectors of the steps of a stack.

        Quantities without a scalar count as not measured.
        """
        none = tf.zeros_like(measured["loss"])
        values = [tf.cast(measured.get(name, none), tf.float32) for name in self.quantities]
        known = [float(name in measured) for name in self.quantities]
        return Step(direction, logits, tf.stack(values, axis=-1), tf.constant(known))

    def gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, sources: Any = None
    ) -> list[tf.Tensor]:
        """Gradients of a loss that was taken times `self.loss_scale()`, the scale undone.

        Args:
            tape: Has watched the sources.
            loss: The scaled loss.
            sources: What to differentiate by, a list; the trainable variables unless given.
        """
        sources = self.trainable_variables if sources is None else sources
        gradients = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        scale = self.loss_scale()
        return gradients if scale is None else [g / tf.cast(scale, g.dtype) for g in gradients]

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss times the optimizer's loss scale, for mixed_float16."""
        return loss if self.loss_scale() is None else self.optimizer.scale_loss(loss)

    def loss_scale(self) -> tf.Tensor | None:
        """The optimizer's loss scale, or None where it has none."""
        scales = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)
        if not scales and self.optimizer.loss_scale_factor is None:
            return None
        return self.optimizer.scale_loss(tf.constant(1.0))

    def apply_step(self, step: Step) -> None:
        """Apply a step that is finite; a method whose own state moves with it writes that here."""
        if isinstance(step.direction, RowDirection) and self._descends:
            rate = self.optimizer.learning_rate
            step.direction.factors.descend(self.trainable_variables, rate)
            self.optimizer.iterations.assign_add(1)
        else:
            self.apply(step.direction)

    def apply(self, direction: list[tf.Tensor]) -> None:
        """Apply ONE optimizer update with a direction whose loss scale is undone."""
        scale = self.loss_scale()
        if scale is not None:
            direction = [d * tf.cast(scale, d.dtype) for d in direction]
        self.optimizer.apply(direction, self.trainable_variables)

    def state_variables(self) -> dict[str, keras.Variable]:
        """Every variable that going on depends on: weights, memory, optimizer, counters, log."""
        variables = [*self.variables, *self.optimizer.variables]
        if self.step_log is not None:
            variables += self.step_log.variables()
        return {f"{i:04d} {v.name}": v for i, v in enumerate(variables)}

    def record_steps(self, every: int) -> StepLog:
        """Keep rows of every quantity over windows of `every` steps; returns the log."""
        if self.step_log is None or self.step_log.every != every:
            executed = getattr(self, "steps_per_execution", 1) // every
            with self.distribute_strategy.scope():
                self.step_log = StepLog(self.quantities, self.cumulative, every, rows=64 + executed)
            if self.train_function is not None:
                self.make_train_function(force=True)
        return self.step_log

    def observe(self, observer: Observer | None) -> None:
        """Let an observer look on from the next step on; None for nobody."""
        if observer is not self.observer:
            self.observer = observer
            if self.train_function is not None:
                self.make_train_function(force=True)

    @property
    def jits(self) -> bool:
        """Whether `compile` asked for XLA."""
        return self._jit

    def under_xla(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of tensors under XLA, where `compile` asked for it."""
        return tf.function(function, jit_compile=True) if self._jit else function

    def _learn_and_apply(self, *batches: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if self.replicas is not None:
            return self._one_step_on_replicas(*batches)
        return self.under_xla(self._one_step)(*batches)

    def _one_step_on_replicas(self, *batches: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        statistics = [tf.identity(v.value) for v in self.network.non_trainable_variables]
        step = self.learn_on_replicas(*batches)
        finite = self._is_finite(step)
        replicas.apply_where(self, finite, step.direction)
        replicas.restore_unless(finite, self.network.non_trainable_variables, statistics)
        return step.logits, tf.where(finite, step.values, np.nan), step.measured

    def learn_on_replicas(self, *batches: Batch) -> Step:
        """The step of all replicas together, each with its slices of the batches.

        For a method whose direction is the mean over all examples: the replicas' directions are
        summed by their shares of the examples.
        """
        each, joint = replicas.shares(*batches)
        step = self.learn(*batches)
        direction = replicas.weighted(joint, step.direction)
        # A loss on the memory batch is a mean over that batch alone.
        of_memory = [name.startswith("memory") for name in self.quantities]
        share = tf.where(of_memory, each[-1], each[0])
        *direction, values, known = replicas.summed(
            [*direction, step.values * step.measured * share, step.measured]
        )
        return step._replace(
            direction=direction, values=values, measured=tf.cast(known > 0, tf.float32)
        )

    def _one_step(self, *batches: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        statistics = [tf.identity(v.value) for v in self.network.non_trainable_variables]
        step = self.learn(*batches)
        finite = self._is_finite(step)
        tf.cond(
            finite,
            lambda: self.apply_step(step),
            lambda: self._leave(step.direction, statistics),
        )
        values = tf.where(finite, step.values, np.nan)
        return step.logits, values, step.measured

    def _is_finite(self, step: Step) -> tf.Tensor:
        """Whether a step may be applied: it is finite, and learning has not failed before."""
        if isinstance(step.direction, RowDirection):
            size = step.direction.size
        else:
            size = tf.add_n([tf.cast(tf.nn.l2_loss(d), tf.float32) for d in step.direction])
        finite = tf.math.is_finite(tf.cast(size, tf.float32) + step.values[0])
        return finite & (self.skipped_in_a_row.value < SKIPS_IN_A_ROW)

    def _leave(self, direction: list[tf.Tensor], statistics: list[tf.Tensor]) -> None:
        """Undo what the forward passes of a skipped step changed."""
        for variable, value in zip(self.network.non_trainable_variables, statistics, strict=True):
            variable.assign(value)
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            # It applies nothing that is not finite, and halves its scale.
            self.apply([d * np.nan for d in direction])

    def _observed(
        self,
        batch: Batch,
        update: Callable[[], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
        replay: Batch | None = None,
    ) -> Outcome:
        """Learn a batch while the observer looks on; `replay` as in `Observer.before_update`."""
        if self.observer is None:
            return self._counted(*update())
        noted = self.observer.before_update(self, batch, replay)
        outcome = self._counted(*update())
        learned = batch._replace(weights=outcome.counted(batch.weights))
        self.observer.after_update(self, learned, outcome.values, outcome.measured, noted)
        return outcome

    def _counted(self, logits: tf.Tensor, values: tf.Tensor, measured: tf.Tensor) -> Outcome:
        """What an update returned, as an outcome; whether its step was skipped is counted."""
        finite = tf.math.is_finite(values[0])
        skipped = tf.cast(tf.logical_not(finite), tf.int32)
        self.skipped.assign_add(skipped)
        self.skipped_in_a_row.assign((self.skipped_in_a_row.value + skipped) * skipped)
        logits = tf.cast(logits, self._logits_dtype)
        return Outcome(logits, values, tf.where(finite, measured, 0.0))


def descends_plainly(learner: Learner) -> bool:
    """Whether the optimizer does x <- x - learning_rate * gradient, and nothing more."""
    if type(learner.optimizer) is not keras.optimizers.SGD:
        return False
    settings = learner.optimizer.get_config()
    more = set(settings) - {"name", "learning_rate", "ema_momentum"}
    # The optimizer is what holds a weight to its constraint.
    constrained = any(v.constraint is not None for v in learner.trainable_variables)
    return not constrained and not any(settings[name] for name in more)


def _metric(metric: Any) -> Any:
    # Made here, where Keras would make it during the first step and trace that step twice.
    if metric in ("accuracy", "acc"):
        return keras.metrics.SparseCategoricalAccuracy(name=metric)
    return keras.metrics.get(metric)
