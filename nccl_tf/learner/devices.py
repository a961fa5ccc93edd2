"""The devices of a learner: one alone, or the replicas of tf.distribute together.

A learner asks `self.devices` and does not know which it has. Every replica holds all of the
learner's state and the same numbers in it, and takes the same step: it has the whole batches of
stream and memory, so that losses, masks, logs and rules are those of one device. Only the passes
through the network are shared out. A replica passes its rows, the outputs of all are gathered, and
the gradients are averaged. No replica may wait for another inside a conditional, so whether the
memory has examples is asked around the step of all.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf import xla
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError, one_line
from nccl_tf.gradients import loss_scale
from nccl_tf.keras_private import epoch_of_backup, function_of_steps, layers_of, own_others
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Step
from nccl_tf.variables import assigned_by, pack_bytes, unpack_bytes

Before = list[tuple[keras.Variable, tf.Tensor]]
"""Variables that a step may write, each with its value from before the step."""
TAKES_STEPS = (
    "train_step", "update", "learn", "replay", "gradient_pair", "two_tapes", "gradient",
    "taped_gradients", "learn_and_apply", "apply_step", "apply",
)  # fmt: skip
"""The methods of a learner that take gradients and apply them. A class that overrides one of them
runs on replicas where it says so itself."""

_GATHERED = tf.float16, tf.float32, tf.float64, tf.int32, tf.int64
"""What the collective operations of tf.distribute take."""
_SUM = "_all_reduce_sum_gradients"
"""The method of Keras's optimizers that sums over replicas, from pairs of gradient and variable."""


class OneDevice:
    """A learner outside of tf.distribute.

    Args:
        learner: The learner.
    """

    count = 1
    _strategy: Any = None

    def __init__(self, learner: keras.Model):
        self._learner = learner
        self._written: set[int] | None = None

    def check_scope(self) -> None:
        """Check that no scope is open of a strategy in which the learner was not built.

        Raises:
            UserError: One is, under which variables from outside cannot be trained.
        """
        now = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        if now is not None and now is not self._strategy:
            name, strategy = type(self._learner).__name__, type(now).__name__
            raise UserError(
                f"received a {name} that was built outside of the scope of this {strategy}: build "
                "the network, its memory and the learner, and compile it, within "
                "one `with strategy.scope():`; fit and evaluate need no scope"
            )

    def check_learner(self) -> None:
        """Refuse a learner that cannot run here."""

    def check_option(self, option: Option) -> None:
        """Nothing: one device runs every option."""

    def check_grows(self) -> None:
        """Refuse a head that grows, where it cannot."""

    def check_learns_a_batch(self, verb: str) -> None:
        """Refuse a verb that takes a batch outside of Keras's loop, where it has no meaning."""

    def check_divides(self, what: str, size: int) -> None:
        """Check that a batch can be cut into a slice for each replica."""

    def prepare(self, jit_compile: bool) -> None:
        """Make a learner that has been compiled ready to be traced."""
        self._written = None

    def fit(self, x: Any, **arguments: Any) -> keras.callbacks.History:
        """As `keras.Model.fit`."""
        return keras.Model.fit(self._learner, x, **arguments)

    def evaluate(self, x: Any, return_dict: bool, **arguments: Any) -> Any:
        """As `keras.Model.evaluate`."""
        return keras.Model.evaluate(self._learner, x, return_dict=return_dict, **arguments)

    def train_function(self, step: Callable[[Any], Any]) -> Callable[..., Any]:
        """The function that Keras calls with an iterator; it takes a step or several.

        Args:
            step: From the data of a batch to logs.
        """
        return function_of_steps(self._learner, step)

    def rows(self, tensor: tf.Tensor) -> tf.Tensor:
        """The rows of a whole batch [n, ...] that are passed and measured here."""
        return tensor

    def gather(self, batch: Batch) -> Batch:
        """The whole batch, of which this is the part that was delivered here."""
        return batch

    def outputs(self, forward: Callable[..., list[tf.Tensor]], *batches: Batch) -> list[tf.Tensor]:
        """The network's outputs for whole batches.

        Args:
            forward: From batches to the outputs [n, ...] of each.
            *batches: The batches.
        """
        return forward(*batches)

    def losses(self, network: keras.Model) -> list[tf.Tensor]:
        """The losses of the network's own layers in its last pass, scalars."""
        return network.losses

    def mean(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of a loss of whole batches."""
        return gradients

    def written(self, batch: Batch) -> list[keras.Variable]:
        """The network's variables that a step may write, apart from its update.

        All that are not trainable, such as moving averages, and those trainable ones that a layer
        assigns, such as the kernel of `keras.layers.SpectralNormalization`.

        Args:
            batch: The stream batch.
        """
        learner = self._learner
        if learner.run_eagerly:  # The network need not be traceable.
            return learner.network.variables
        trainable = learner.network.trainable_variables
        if self._written is None:
            outputs = functools.partial(learner.outputs, training=True)
            found = assigned_by(outputs, trainable, batch.inputs, batch.tasks)
            self._written = {id(variable) for variable in found}
        written = [variable for variable in trainable if id(variable) in self._written]
        return [*learner.network.non_trainable_variables, *written]

    def replay(
        self,
        batch: Batch,
        replays: Sequence[Batch],
        replay: Callable[..., Step],
    ) -> Step:
        """Learn and apply a step on the stream, and on the memory where it has examples.

        Args:
            batch: The stream batch.
            replays: The memory batches.
            replay: From all batches to a step with gradients.
        """

        # The conditional gives gradients and moves no weight, of which XLA would make copies.
        def replay_or_learn(batch: Batch, *replays: Batch) -> Step:
            return tf.cond(
                tf.reduce_any(replays[0].weights > 0),
                lambda: replay(batch, *replays).with_all_logs(self._learner.log_names),
                lambda: self._learner.learn(batch).with_all_logs(self._learner.log_names),
            )

        return self._learner.learn_and_apply(replay_or_learn, batch, *replays)

    def apply(self, step: Step, accepted: tf.Tensor, before: Before) -> None:
        """Apply a step, or leave everything as it was where it is not accepted.

        Args:
            step: A step with gradients.
            accepted: bool scalar.
            before: The variables of `written`.
        """
        if not xla.in_program() or loss_scale(self._learner.optimizer) is not None:
            tf.cond(
                accepted,
                lambda: self._learner.apply_step(step),
                lambda: self._skip(step, before),
            )
            return
        # In a program of XLA every number is chosen where it is written. A condition would wait
        # for the loss on the host.
        values = {id(v): value for v, value in before}
        variables = [*self._learner.variables, *self._learner.optimizer.variables]
        values = {id(v): tf.convert_to_tensor(v.value) for v in variables} | values
        self._learner.apply_step(step)
        for variable in variables:
            variable.assign(tf.where(accepted, variable.value, values[id(variable)]))

    def _skip(self, step: Step, before: Before) -> None:
        """Undo what the forward passes of a step have changed."""
        for variable, value in before:
            variable.assign(value)
        scales = isinstance(self._learner.optimizer, keras.optimizers.LossScaleOptimizer)
        if scales and step.gradients:
            # It applies nothing that is not finite, and halves its scale.
            self._learner.apply([g * np.nan for g in step.gradients])


class Replicas(OneDevice):
    """A learner built in the scope of a tf.distribute strategy. From `slice` on, graph code.

    Args:
        learner: The learner.
    """

    def __init__(self, learner: keras.Model):
        super().__init__(learner)
        strategy = tf.distribute.get_strategy()
        self.count = strategy.num_replicas_in_sync
        self._strategy = strategy
        self._steps: Any = None
        self._replays = False
        self._passed = threading.local()  # A replica is a thread while it is traced.

    def check_learner(self) -> None:
        """Refuse a learner that runs on one device only.

        Raises:
            UserError: It does.
        """
        name = type(self._learner).__name__
        if not self._learner.on_replicas:
            raise UserError(
                f"{name} runs on one replica only: build it outside of the scope of a "
                "tf.distribute strategy, or take Finetune, ExperienceReplay, AGEM or NCCL"
            )
        changed = overridden(type(self._learner).__mro__)
        if changed:
            raise UserError(
                f"{name} runs on one replica only, because it overrides {', '.join(changed)}: "
                "build it outside of the scope of a tf.distribute strategy; or, where each of "
                "them takes its gradients by self.gradient, write on_replicas = True into the class"
            )

    def check_option(self, option: Option) -> None:
        """Refuse an option that runs on one device only.

        Raises:
            UserError: It does.
        """
        if not option.on_replicas:
            given = ", ".join(option.get_config()) or type(option).__name__
            raise UserError(
                f"received {given} under a tf.distribute strategy, which runs on one replica only: "
                "leave it out, or build the learner outside of the strategy's scope"
            )

    def check_grows(self) -> None:
        """Raise UserError: variables on replicas keep their shape."""
        raise UserError(
            "classes cannot be added under a tf.distribute strategy, whose variables keep their "
            "shape: build the network with outputs enough"
        )

    def check_learns_a_batch(self, verb: str) -> None:
        """Raise UserError: outside of Keras's loop every replica gets the whole batch."""
        raise UserError(
            f"{verb} gives every replica the whole batch, so that a memory would keep it more than "
            "once: call fit(x, y, batch_size=len(x), shuffle=False, end_task=False)"
        )

    def check_divides(self, what: str, size: int) -> None:
        """As `OneDevice.check_divides`.

        Raises:
            UserError: It cannot; `what` names the batch.
        """
        check_divides(what, size, self.count)

    def prepare(self, jit_compile: bool) -> None:
        """Make a learner that has been compiled ready to be traced on replicas.

        Raises:
            UserError: It was made or compiled with an option that runs on one replica only, or a
                metric does not fit.
        """
        super().prepare(jit_compile)
        optimizer = self._learner.optimizer
        for name in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
            if getattr(optimizer, name, None):
                raise UserError(
                    f"received {name}={getattr(optimizer, name)} of {type(optimizer).__name__} "
                    "under a tf.distribute strategy, whose replicas would have to meet in a part "
                    "of the steps alone: leave it out, or build the learner outside of the scope"
                )
        scaled = isinstance(self._learner.optimizer, keras.optimizers.LossScaleOptimizer)
        if scaled or jit_compile:
            raise UserError(
                f"received {'mixed_float16' if scaled else 'jit_compile=True'} under a "
                "tf.distribute strategy: replicas run without XLA, in float32 or mixed_bfloat16"
            )
        # Metrics that no batch has been shown yet are shown float32 task ids by Keras.
        outputs = tf.zeros([1, *(size or 1 for size in self._learner.network.output_shape[1:])])
        takes_numbers = self._learner.example_loss.takes_class_numbers
        labels = tf.zeros([1], tf.int64) if takes_numbers else outputs
        nothing = labels, outputs, tf.zeros([1])

        @tf.function(autograph=False)
        def show() -> None:
            self._strategy.run(lambda: self._learner.compute_metrics(None, *nothing))

        try:
            show()
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise UserError(
                f"received metrics that do not fit outputs of shape {tuple(outputs.shape)[1:]} "
                f"({one_line(str(error))[:200]}): take others, or try them outside of the "
                "tf.distribute strategy, where an error names the metric"
            ) from error
        self._learner.reset_metrics()
        self._steps = None

    def fit(self, x: Any, **arguments: Any) -> keras.callbacks.History:
        """`fit` by Keras, or by `_fit` where Keras's fails.

        Keras's raises under MultiWorkerMirroredStrategy, and with several steps in one call under
        MirroredStrategy, whose replicas cannot meet inside the conditional around a step.
        """
        workers = isinstance(self._strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if not workers and self._learner.steps_per_execution == 1:
            return super().fit(x, **arguments)
        return self._fit(x, **arguments)

    def _fit(
        self,
        x: Any,
        *,
        epochs: int = 1,
        callbacks: Any = None,
        verbose: Any = 0,
        **arguments: Any,
    ) -> keras.callbacks.History:
        if not isinstance(x, tf.data.Dataset) or x.cardinality() < 0:
            raise UserError(
                f"received {type(x).__name__} to learn on replicas: expected a tf.data.Dataset "
                "of known length, such as task.train_batches()"
            )
        asked = sorted(name for name, value in arguments.items() if value)
        if asked:
            raise UserError(
                f"received {', '.join(asked)} to learn on replicas with several steps in a "
                "call or several workers: leave it out, or take steps_per_execution=1"
            )
        self.check_divides("batch size", tf.nest.flatten(x.element_spec)[0].shape[0] or 0)
        batches = int(x.cardinality())
        called = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=self._learner, epochs=epochs, verbose=verbose,
            steps=batches,
        )  # fmt: skip
        self._learner.stop_training = False
        if self._steps is None:
            self._steps = tf.function(self._run_steps, reduce_retracing=True, autograph=False)
        called.on_train_begin()
        logs: dict[str, Any] = {}
        for epoch in range(epoch_of_backup(self._learner) or 0, epochs):  # of a backup
            self._learner.reset_metrics()
            called.on_epoch_begin(epoch)
            iterator = iter(x)
            for first in range(0, batches, self._learner.steps_per_execution):
                count = min(self._learner.steps_per_execution, batches - first)
                called.on_train_batch_begin(first)
                with self._learner.execution.turns.take():
                    self._steps(iterator, tf.constant(count))
                called.on_train_batch_end(first + count - 1)
                if self._learner.stop_training:
                    break
            logs = self._learner.get_metrics_result()
            called.on_epoch_end(epoch, logs)
            if self._learner.stop_training:
                break
        # As Keras's `fit`: an optimizer with `use_ema` leaves the averages as weights.
        self._learner.optimizer.finalize_variable_values(self._learner.trainable_weights)
        called.on_train_end(logs)
        return self._learner.history

    def _run_steps(self, iterator: Any, count: tf.Tensor) -> None:
        """Learn batches, each replica its slice of every one."""

        def step(data: Any) -> None:
            self._learner.train_step(tf.nest.map_structure(self.rows, data))

        def batch(i: tf.Tensor) -> tuple[tf.Tensor]:
            self._run(step, next(iterator))
            return (i + 1,)

        tf.while_loop(lambda i: i < count, batch, (tf.constant(0),))

    def evaluate(self, x: Any, return_dict: bool, **arguments: Any) -> Any:
        """Evaluate over the examples of all replicas.

        The logs of a step are means over the replicas, whatever examples each of them had.
        """
        logs = super().evaluate(x, return_dict=True, **arguments)
        results = self._learner.get_metrics_result()
        in_order = sorted(logs, key=lambda name: name != "loss")
        logs = {name: float(results[name]) for name in in_order}
        return logs if return_dict else list(logs.values())

    def train_function(self, step: Callable[[Any], Any]) -> Callable[..., Any]:
        """As `OneDevice.train_function`: one step, which Keras's own would run unconditionally."""

        def one_step(iterator: Any) -> Any:
            data = next(iterator)
            # Data of unknown length end here. The memory is asked once there is a batch.
            with tf.control_dependencies(_tensors(data)):
                return self._run(step, data)

        if self._learner.run_eagerly:
            return one_step
        return tf.function(one_step, reduce_retracing=True, autograph=False)

    def _run(self, step: Callable[[Any], Any], data: Any) -> Any:
        """A step of all replicas, which replay where the memory has examples; the first one's logs.

        Raises:
            UserError: The memory waits for shapes that no first batch has told, such as of data
                from a generator, which has given none before the replicas' steps are traced.
        """

        def run(replays: bool) -> Any:
            self._replays = replays
            logs = self._strategy.run(step, args=(data,))
            return tf.nest.map_structure(
                lambda value: self._strategy.experimental_local_results(value)[0], logs
            )

        if self._learner.memory is None:
            return run(False)
        memory = self._learner.memory
        if not memory.is_allocated:
            raise UserError(
                f"received a generator for a {type(memory).__name__} that was built without "
                "shapes, under a tf.distribute strategy: pass arrays or a tf.data.Dataset, or name "
                "example_shape and example_dtype of the memory"
            )
        return tf.cond(memory.readable_count() > 0, lambda: run(True), lambda: run(False))

    def rows(self, tensor: tf.Tensor) -> tf.Tensor:
        """This replica's rows: as many as the others have, or one more."""
        context = tf.distribute.get_replica_context()
        count, number = context.num_replicas_in_sync, context.replica_id_in_sync_group
        length = tf.shape(tensor)[0]
        part = tensor[number * length // count : (number + 1) * length // count]
        size = tensor.shape[0]
        even = size is not None and size % count == 0
        return tf.ensure_shape(part, [size // count if even else None, *tensor.shape[1:]])

    def gather(self, batch: Batch) -> Batch:
        """The parts of all replicas as one batch, in the order of the replicas."""
        context = tf.distribute.get_replica_context()
        inputs = tf.nest.flatten(batch.inputs)
        sent = [self._as_sent(part) for part in inputs]
        # A tensor that all replicas have in common, such as the task ids of a whole batch, would
        # come back as it is.
        extras = batch.extras
        parts = [tf.identity(part) for part in (*sent, *batch[1:4], *extras.values())]
        received = context.all_gather(parts, axis=0)
        parts = [
            unpack_bytes(part, tuple(old.shape[1:]))
            if old.dtype == tf.uint8
            else tf.cast(part, old.dtype)
            for part, old in zip(received, inputs, strict=False)
        ]
        whole = tf.nest.pack_sequence_as(batch.inputs, parts)
        labels, tasks, weights, *columns = received[len(inputs) :]
        return Batch(whole, labels, tasks, weights, dict(zip(extras, columns, strict=True)))

    def _as_sent(self, inputs: tf.Tensor) -> tf.Tensor:
        """Inputs [n, ...] in a dtype that can be gathered, from which theirs is had again.

        Raises:
            UserError: They are text, which no collective operation takes.
        """
        if inputs.dtype == tf.string:
            raise UserError(
                "received text as inputs under a tf.distribute strategy, which gathers numbers "
                "alone: give numbers such as token ids, by a tokenizer or TextVectorization before "
                "the network, or build the learner outside of the scope"
            )
        if inputs.dtype == tf.uint8:
            return pack_bytes(inputs)
        if inputs.dtype in _GATHERED:
            return inputs
        return tf.cast(inputs, tf.float32 if inputs.dtype.is_floating else tf.int64)

    def outputs(self, forward: Callable[..., list[tf.Tensor]], *batches: Batch) -> list[tf.Tensor]:
        """As `OneDevice.outputs`; every replica passes its rows.

        Each takes the gradient of the whole loss by its own rows, times the number of replicas:
        `mean` then has the gradient of one device, also of what depends on the weights directly.
        """
        context = tf.distribute.get_replica_context()

        @tf.custom_gradient
        def gather(*parts: tf.Tensor) -> Any:
            def gradient(*slopes: tf.Tensor) -> list[tf.Tensor]:
                return [context.num_replicas_in_sync * self.rows(slope) for slope in slopes]

            return context.all_gather(list(parts), axis=0), gradient

        parts = forward(*(batch.map(self.rows) for batch in batches))
        # A layer keeps those of the replica that passed last.
        self._passed.losses = self._learner.network.losses
        # The collective operations of several workers know no bfloat16.
        wholes = gather(*map(at_least_float32, parts))
        return [tf.cast(whole, part.dtype) for whole, part in zip(wholes, parts, strict=True)]

    def losses(self, network: keras.Model) -> list[tf.Tensor]:
        """As `OneDevice.losses`, of this replica's pass; those of activities are of its rows."""
        return self._passed.losses

    def mean(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of a loss of whole batches: the mean over the replicas."""
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def written(self, batch: Batch) -> list[keras.Variable]:
        """All of the network's variables: `apply` undoes an update too."""
        return self._learner.network.variables

    def replay(
        self,
        batch: Batch,
        replays: Sequence[Batch],
        replay: Callable[..., Step],
    ) -> Step:
        """As `OneDevice.replay`; whether the memory has examples has been asked around the step."""
        if self._replays:
            return self._learner.learn_and_apply(replay, batch, *replays)
        return self._learner.learn_and_apply(self._learner.learn, batch)

    def apply(self, step: Step, accepted: tf.Tensor, before: Before) -> None:
        """Apply a step that is the same on all replicas, and undo it where it is not accepted.

        Not a conditional, in which no replica may wait for another.
        """
        self._share_statistics(before)
        optimizer = self._learner.optimizer
        before = [*before, *((v, tf.identity(v.value)) for v in optimizer.variables)]
        with _as_received(optimizer):
            optimizer.apply(step.gradients, self._learner.trainable_variables)
        for variable, value in before:
            variable.assign(tf.where(accepted, variable.value, value))

    def _share_statistics(self, before: Before) -> None:
        """Give all replicas the mean of what their slices have made of a layer's statistics.

        Moving averages of batch normalisation are such; weights that are frozen stay as they are.

        Args:
            before: Variables of the network, with their values from before the passes.
        """
        layers = layers_of(self._learner.network, include_self=True)
        own = {id(v) for layer in layers for v in own_others(layer)}
        moved = [(v, old) for v, old in before if id(v) in own and old.dtype.is_floating]
        if not moved:
            return
        # What no slice has moved keeps its bits, infinities too.
        values = [tf.convert_to_tensor(v.value) for v, _ in moved]
        changes = [
            tf.where(tf.equal(new, old), tf.zeros_like(old), new - old)
            for new, (_, old) in zip(values, moved, strict=True)
        ]
        context = tf.distribute.get_replica_context()
        means = context.all_reduce(tf.distribute.ReduceOp.MEAN, changes)
        for (variable, old), change in zip(moved, means, strict=True):
            variable.assign(tf.where(change == 0, old, old + change))


def _tensors(data: Any) -> list[tf.Tensor]:
    """The tensors of a batch, those of all replicas."""
    parts = tf.nest.flatten(data, expand_composites=True)
    return [part for part in parts if part is not None]


@contextmanager
def _as_received(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """Let an optimizer apply the gradients that it receives, which all replicas have in whole.

    Keras sums them over the replicas, after it has clipped those of each: parts of them would be
    clipped at a bound that is too large, and a variable that its gradient overwrites would get the
    part of one replica.
    """
    assert hasattr(optimizer, _SUM), "Keras sums gradients over replicas elsewhere"
    object.__setattr__(optimizer, _SUM, list)
    try:
        yield
    finally:
        # Replicas are threads, which go through `apply` together: the first one to end takes it
        # away when the others are past it.
        vars(optimizer).pop(_SUM, None)


def kind_in_scope() -> type[OneDevice]:
    """The devices of a learner that is built where this is called."""
    return Replicas if tf.distribute.has_strategy() else OneDevice


def check_divides(what: str, size: int, replicas: int) -> None:
    """Check that a batch can be cut into a slice for each replica.

    Raises:
        UserError: It cannot; `what` names the batch.
    """
    if size % replicas:
        raise UserError(
            f"{what}={size} cannot be cut into equal slices for {replicas} replicas: expected a "
            f"multiple of {replicas}"
        )


def overridden(mro: Sequence[type]) -> list[str]:
    """What of `TAKES_STEPS` classes override below the one that says `on_replicas`.

    Args:
        mro: A class of learners and its bases, in their order.
    """
    says = next(i for i, base in enumerate(mro) if "on_replicas" in vars(base))
    names = {name for base in mro[:says] for name in vars(base)}
    return [name for name in TAKES_STEPS if name in names]
