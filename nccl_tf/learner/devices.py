"""The devices of a learner: one alone, or the replicas of tf.distribute together.

What a step asks of its devices are verbs of the graph, which know the network and no learner. Every
replica holds all of the learner's state and the same numbers in it, and takes the same step: it has
the whole batches of stream and memory, so that losses, masks, logs and rules are those of one
device. Only the passes through the network are shared out. A replica passes its rows, the outputs
of all are gathered, and the gradients are averaged. No replica may wait for another inside a
conditional, so whether the memory has examples is asked around the step of all.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf import xla
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError, one_line
from nccl_tf.keras_private import epoch_of_backup, graph, layers_of, own_others, without_sum
from nccl_tf.learner.heads import at_least_float32
from nccl_tf.learner.options.option import Option
from nccl_tf.variables import assigned_by, pack_bytes, unpack_bytes

Before = list[tuple[keras.Variable, tf.Tensor]]
"""Variables that a step may write, each with its value from before the step."""
TAKES_STEPS = (
    "train_step", "update", "learn", "replay", "gradient_pair", "two_tapes", "gradient",
    "taped_gradients", "learn_and_apply", "replay_and_apply", "apply_step", "apply",
)  # fmt: skip
"""The methods of a learner that take gradients and apply them. A class that overrides one of them
runs on replicas where it says so itself."""

_GATHERED = tf.float16, tf.float32, tf.float64, tf.int32, tf.int64
"""dtypes that the collective operations of tf.distribute take."""


class OneDevice:
    """The device of a learner outside of tf.distribute.

    Args:
        network: The learner's.

    Attributes:
        count: How many replicas there are.
        strategy: That of tf.distribute; None for one device.
        loop: What runs the steps of a `fit`; None for Keras's own loop.
    """

    count = 1
    strategy: Any = None
    loop: "ReplicaLoop | None" = None

    def __init__(self, network: keras.Model):
        self._network = network
        self._written: set[int] | None = None

    def check_scope(self, name: str) -> None:
        """Check that no scope is open of a strategy in which the learner was not built.

        Args:
            name: The learner's class, for the message.

        Raises:
            UserError: One is, under which variables from outside cannot be trained.
        """
        now = tf.distribute.get_strategy() if tf.distribute.has_strategy() else None
        if now is not None and now is not self.strategy:
            strategy = type(now).__name__
            raise UserError(
                f"received a {name} that was built outside of the scope of this {strategy}: build "
                "the network, its memory and the learner, and compile it, within "
                "one `with strategy.scope():`; fit and evaluate need no scope"
            )

    def check_learner(self, kind: Any) -> None:
        """Refuse a class of learners that cannot run here."""

    def check_option(self, option: Option) -> None:
        """Nothing: one device runs every option."""

    def check_grows(self) -> None:
        """Refuse a head that grows, where it cannot."""

    def check_learns_a_batch(self, verb: str) -> None:
        """Refuse a verb that takes a batch outside of Keras's loop, where it has no meaning."""

    def check_divides(self, what: str, size: int) -> None:
        """Check that a batch can be cut into a slice for each replica."""

    def begin(self, optimizer: keras.optimizers.Optimizer, jit_compile: bool) -> None:
        """Begin anew with what a learner is compiled with, before its steps are traced."""
        self._written = None

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

    def losses(self) -> list[tf.Tensor]:
        """The losses of the network's own layers in its last pass, scalars."""
        return self._network.losses

    def mean(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of a loss of whole batches."""
        return gradients

    def written(
        self, outputs: Callable[..., tf.Tensor], batch: Batch, eagerly: bool
    ) -> list[keras.Variable]:
        """The network's variables that a step may write, apart from its update.

        All that are not trainable, such as moving averages, and those trainable ones that a layer
        assigns, such as the kernel of `keras.layers.SpectralNormalization`.

        Args:
            outputs: From inputs, tasks and `training` to the network's outputs.
            batch: The stream batch.
            eagerly: Whether steps run eagerly, so that the network need not be traceable.
        """
        if eagerly:
            return self._network.variables
        trainable = self._network.trainable_variables
        if self._written is None:
            trained = functools.partial(outputs, training=True)
            found = assigned_by(trained, trainable, batch.inputs, batch.tasks)
            self._written = {id(variable) for variable in found}
        written = [variable for variable in trainable if id(variable) in self._written]
        return [*self._network.non_trainable_variables, *written]

    def either(self, filled: tf.Tensor, replay: Callable[[], Any], learn: Callable[[], Any]) -> Any:
        """The result of a step on the stream and the memory, or on the stream alone. Graph code.

        Args:
            filled: bool scalar, whether the memory has examples.
            replay: Makes it of both.
            learn: Makes it of the stream.
        """
        return tf.cond(filled, replay, learn)

    def accept(
        self,
        accepted: tf.Tensor,
        before: Before,
        state: Sequence[keras.Variable],
        optimizer: keras.optimizers.Optimizer,
        apply: Callable[[], None],
        skip: Callable[[], None] | None,
    ) -> None:
        """Apply an update, or leave everything as it was where it is not accepted. Graph code.

        Args:
            accepted: bool scalar.
            before: The variables of `written`, each with its value from before the passes.
            state: Variables that the update may write, beside those of the optimizer.
            optimizer: That the update is made with.
            apply: Applies it.
            skip: Tells the loss scale of an update that is not accepted; None where there is none.
        """
        if not xla.in_program() or skip is not None:

            def undo() -> None:
                for variable, value in before:
                    variable.assign(value)
                if skip is not None:
                    skip()

            tf.cond(accepted, apply, undo)
            return
        # In a program of XLA every number is chosen where it is written. A condition would wait
        # for the loss on the host.
        values = {id(v): value for v, value in before}
        variables = [*state, *optimizer.variables]
        values = {id(v): tf.convert_to_tensor(v.value) for v in variables} | values
        apply()
        for variable in variables:
            variable.assign(tf.where(accepted, variable.value, values[id(variable)]))


class Replicas(OneDevice):
    """The replicas of a learner that is built in the scope of a tf.distribute strategy.

    Args:
        network: The learner's.

    Attributes:
        replays: Whether the memory has examples in the step that is traced.
    """

    def __init__(self, network: keras.Model):
        super().__init__(network)
        self.strategy = tf.distribute.get_strategy()
        self.count = self.strategy.num_replicas_in_sync
        self.loop = ReplicaLoop(self)
        self.replays = False
        self._passed = threading.local()  # A replica is a thread while it is traced.

    def check_learner(self, kind: Any) -> None:
        """Refuse a class of learners that runs on one device only.

        Raises:
            UserError: It does.
        """
        name = kind.__name__
        if not kind.on_replicas:
            raise UserError(
                f"{name} runs on one replica only: build it outside of the scope of a "
                "tf.distribute strategy, or take Finetune, ExperienceReplay, AGEM or NCCL"
            )
        changed = overridden(kind.__mro__)
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
            names = ", ".join(option.get_config()) or type(option).__name__
            raise UserError(
                f"received {names} under a tf.distribute strategy, which runs on one replica only: "
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

    def begin(self, optimizer: keras.optimizers.Optimizer, jit_compile: bool) -> None:
        """As `OneDevice.begin`.

        Raises:
            UserError: Replicas cannot run with one of these.
        """
        super().begin(optimizer, jit_compile)
        for name in ("gradient_accumulation_steps", "ema_overwrite_frequency"):
            if getattr(optimizer, name, None):
                raise UserError(
                    f"received {name}={getattr(optimizer, name)} of {type(optimizer).__name__} "
                    "under a tf.distribute strategy, whose replicas would have to meet in a part "
                    "of the steps alone: leave it out, or build the learner outside of the scope"
                )
        scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if scaled or jit_compile:
            raise UserError(
                f"received {'mixed_float16' if scaled else 'jit_compile=True'} under a "
                "tf.distribute strategy: replicas run without XLA, in float32 or mixed_bfloat16"
            )

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
        self._passed.losses = self._network.losses
        # The collective operations of several workers know no bfloat16.
        wholes = gather(*map(at_least_float32, parts))
        return [tf.cast(whole, part.dtype) for whole, part in zip(wholes, parts, strict=True)]

    def losses(self) -> list[tf.Tensor]:
        """As `OneDevice.losses`, of this replica's pass; those of activities are of its rows."""
        return self._passed.losses

    def mean(self, gradients: list[tf.Tensor]) -> list[tf.Tensor]:
        """The gradients of a loss of whole batches: the mean over the replicas."""
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def written(
        self, outputs: Callable[..., tf.Tensor], batch: Batch, eagerly: bool
    ) -> list[keras.Variable]:
        """All of the network's variables: `accept` undoes an update too."""
        return self._network.variables

    def either(self, filled: tf.Tensor, replay: Callable[[], Any], learn: Callable[[], Any]) -> Any:
        """As `OneDevice.either`; whether the memory has examples was asked around the step."""
        return replay() if self.replays else learn()

    def accept(
        self,
        accepted: tf.Tensor,
        before: Before,
        state: Sequence[keras.Variable],
        optimizer: keras.optimizers.Optimizer,
        apply: Callable[[], None],
        skip: Callable[[], None] | None,
    ) -> None:
        """Apply an update that is the same on all replicas, and undo it where it is not accepted.

        Not a conditional, in which no replica may wait for another.
        """
        self._share_statistics(before)
        before = [*before, *((v, tf.identity(v.value)) for v in optimizer.variables)]
        with without_sum(optimizer):
            apply()
        for variable, value in before:
            variable.assign(tf.where(accepted, variable.value, value))

    def _share_statistics(self, before: Before) -> None:
        """Give all replicas the mean of what their slices have made of a layer's statistics.

        Moving averages of batch normalisation are such; weights that are frozen stay as they are.

        Args:
            before: Variables of the network, with their values from before the passes.
        """
        layers = layers_of(self._network, include_self=True)
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


class ReplicaLoop:
    """The loop over steps on all replicas, where Keras's own does not serve.

    Args:
        devices: The replicas.
    """

    def __init__(self, devices: Replicas):
        self._devices = devices
        self._steps: Any = None

    def begin(self, model: Any) -> None:
        """Begin anew with a model that has been compiled: show its metrics a batch of nothing.

        Raises:
            UserError: A metric does not fit.
        """
        # Metrics that no batch has been shown yet are shown float32 task ids by Keras.
        outputs = tf.zeros([1, *(size or 1 for size in model.network.output_shape[1:])])
        takes_numbers = model.example_loss.takes_class_numbers
        labels = tf.zeros([1], tf.int64) if takes_numbers else outputs
        nothing = labels, outputs, tf.zeros([1])

        @tf.function(autograph=False)
        def show() -> None:
            self._devices.strategy.run(lambda: model.compute_metrics(None, *nothing))

        try:
            show()
        except (ValueError, TypeError, tf.errors.OpError) as error:
            raise UserError(
                f"received metrics that do not fit outputs of shape {tuple(outputs.shape)[1:]} "
                f"({one_line(str(error))[:200]}): take others, or try them outside of the "
                "tf.distribute strategy, where an error names the metric"
            ) from error
        model.reset_metrics()
        self._steps = None

    def fit(self, model: Any, x: Any, **arguments: Any) -> keras.callbacks.History:
        """`fit` by Keras, or by `_fit` where Keras's fails.

        Keras's raises under MultiWorkerMirroredStrategy, and with several steps in one call under
        MirroredStrategy, whose replicas cannot meet inside the conditional around a step.
        """
        workers = isinstance(self._devices.strategy, tf.distribute.MultiWorkerMirroredStrategy)
        if not workers and model.steps_per_execution == 1:
            return keras.Model.fit(model, x, **arguments)
        return self._fit(model, x, **arguments)

    def _fit(
        self,
        model: Any,
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
        self._devices.check_divides("batch size", tf.nest.flatten(x.element_spec)[0].shape[0] or 0)
        batches = int(x.cardinality())
        called = keras.callbacks.CallbackList(
            callbacks, add_history=True, model=model, epochs=epochs, verbose=verbose,
            steps=batches,
        )  # fmt: skip
        model.stop_training = False
        if self._steps is None:
            run = functools.partial(self._run_steps, model)
            self._steps = graph(run, reduce_retracing=True)
        called.on_train_begin()
        logs: dict[str, Any] = {}
        for epoch in range(epoch_of_backup(model) or 0, epochs):  # of a backup
            model.reset_metrics()
            called.on_epoch_begin(epoch)
            iterator = iter(x)
            for first in range(0, batches, model.steps_per_execution):
                count = min(model.steps_per_execution, batches - first)
                called.on_train_batch_begin(first)
                with model.execution.turns.take():
                    self._steps(iterator, tf.constant(count))
                called.on_train_batch_end(first + count - 1)
                if model.stop_training:
                    break
            logs = model.get_metrics_result()
            called.on_epoch_end(epoch, logs)
            if model.stop_training:
                break
        # As Keras's `fit`: an optimizer with `use_ema` leaves the averages as weights.
        model.optimizer.finalize_variable_values(model.trainable_weights)
        called.on_train_end(logs)
        return model.history

    def _run_steps(self, model: Any, iterator: Any, count: tf.Tensor) -> None:
        """Learn batches, each replica its slice of every one."""

        def step(data: Any) -> None:
            model.train_step(tf.nest.map_structure(self._devices.rows, data))

        def batch(i: tf.Tensor) -> tuple[tf.Tensor]:
            self._run(model, step, next(iterator))
            return (i + 1,)

        tf.while_loop(lambda i: i < count, batch, (tf.constant(0),))

    def evaluate(self, model: Any, x: Any, return_dict: bool, **arguments: Any) -> Any:
        """Evaluate over the examples of all replicas.

        The logs of a step are means over the replicas, whatever examples each of them had.
        """
        logs = keras.Model.evaluate(model, x, return_dict=True, **arguments)
        results = model.get_metrics_result()
        in_order = sorted(logs, key=lambda name: name != "loss")
        logs = {name: float(results[name]) for name in in_order}
        return logs if return_dict else list(logs.values())

    def function_of_steps(self, model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The function that Keras calls with an iterator: one step, which its own would always run.

        Args:
            model: A compiled learner.
            step: From the data of a batch to logs.
        """

        def one_step(iterator: Any) -> Any:
            data = next(iterator)
            # Data of unknown length end here. The memory is asked once there is a batch.
            with tf.control_dependencies(_tensors(data)):
                return self._run(model, step, data)

        if model.run_eagerly:
            return one_step
        return graph(one_step, reduce_retracing=True)

    def _run(self, model: Any, step: Callable[[Any], Any], data: Any) -> Any:
        """A step of all replicas, which replay where the memory has examples; their first logs."""

        def run(replays: bool) -> Any:
            self._devices.replays = replays
            logs = self._devices.strategy.run(step, args=(data,))
            return tf.nest.map_structure(
                lambda value: self._devices.strategy.experimental_local_results(value)[0], logs
            )

        if model.memory is None:
            return run(False)
        filled = model.memory.readable_count() > 0
        return tf.cond(filled, lambda: run(True), lambda: run(False))


def _tensors(data: Any) -> list[tf.Tensor]:
    """The tensors of a batch, those of all replicas."""
    parts = tf.nest.flatten(data, expand_composites=True)
    return [part for part in parts if part is not None]


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
    """The names in `TAKES_STEPS` that classes override below the one that says `on_replicas`.

    Args:
        mro: A class of learners and its bases, in order.
    """
    says = next(i for i, base in enumerate(mro) if "on_replicas" in vars(base))
    names = {name for base in mro[:says] for name in vars(base)}
    return [name for name in TAKES_STEPS if name in names]
