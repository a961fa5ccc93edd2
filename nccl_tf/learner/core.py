"""The step of a learner, its outputs and its tasks: the parts that a method overrides."""

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self, TypeVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.attributes import check_private_names
from nccl_tf.arguments.choices import MASKS, STORES
from nccl_tf.arguments.constructor_arguments import ConstructorArguments
from nccl_tf.arguments.constructors import refuse_unknown, show_arguments
from nccl_tf.arguments.hyperparameters import Hyperparameter, Rows, rows_of
from nccl_tf.batch import Batch, as_batch, as_floatx, rows_with_nan, split_inputs
from nccl_tf.class_weights import ClassWeights
from nccl_tf.errors import UserError, checked_name, checked_seed
from nccl_tf.gradients import loss_scale
from nccl_tf.keras_private import layers_of, loss_mean
from nccl_tf.learner import adapters, checks, devices, growth, hints, task_pass
from nccl_tf.learner.columns import (
    Column,
    Extras,
    check_columns,
    extras_of,
    place_column,
    with_place_weights,
)
from nccl_tf.learner.data import HostFacts
from nccl_tf.learner.execution import LOGGER, Execution
from nccl_tf.learner.heads import (
    HeadMasks,
    at_least_float32,
    select_logits,
    without_stream_classes,
)
from nccl_tf.learner.losses import ExampleLoss, weighted_mean
from nccl_tf.learner.measures import NanCount, StepMeans
from nccl_tf.learner.options.alignment import AlignHead, Alignment
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.options.rate_decay import RateDecay
from nccl_tf.learner.options.rates import Rates
from nccl_tf.learner.options.stream_mask import StreamMask
from nccl_tf.learner.progress import Progress
from nccl_tf.learner.step import Logits, Logs, Step, checked_applied
from nccl_tf.learner.turns import alone, one_at_a_time
from nccl_tf.memories.kinds import check_memory
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.task_classes import class_table
from nccl_tf.networks.inspection import (
    as_network,
    check_can_be_loaded,
    check_holds_no_state,
    find_head,
    own_training,
    place_mask,
    vocabularies,
)
from nccl_tf.rng import with_argument
from nccl_tf.user_data import check_not_ragged

AnOption = TypeVar("AnOption", bound=Option)


@dataclass
class _Base:
    """The private state of a learner, apart from the attributes of its subclasses.

    Attributes:
        arguments: Of the constructor, as they were given.
        is_made: Whether the constructor has ended, of the whole class.
        head: Name of the layer that makes the logits; None where the network shows it.
        growing: What grows with the head.
        of_steps: The method's variables that a skipped step puts back.
        vocabularies: Of the network's inputs, as `inspection.vocabularies` gives them.
        built_classes: Logits when the learner was made.
        made_with: The ids of the variables that were trained then.
        wrong_label: What graphs note of labels, weights, task ids and token ids in training.
        wrong_at_test: The same at test.
        said: Keys of the warnings that were given.
        has_looked: Whether it was asked what is likely not meant by data of a `fit`.
        trained: What `checks.trained` gave at `compile`; None before it.
        class_names: Of the data that have come so far.
        positive: That of the class which metrics of two judge; None where no data told.
        compile_arguments: Those of `compile`.
        metrics: Those that `compile` has made.
        metrics_fit: Whether the metrics were tried out.
        count: The graph of `confusion`; None before `compile`.
        remember: That of `remember`.
        test_functions: Those of evaluation that Keras calls, by the steps of a call.
        test_steps: Its steps over examples in memory.
    """

    arguments: ConstructorArguments
    is_made: bool = False
    head: str | None = None
    growing: Any = None
    of_steps: list[keras.Variable] = field(default_factory=list)
    vocabularies: list[int | None] = field(default_factory=list)
    built_classes: int = 0
    made_with: list[int] = field(default_factory=list)
    wrong_label: Any = None
    wrong_at_test: Any = None
    said: set[str] = field(default_factory=set)
    has_looked: bool = False
    trained: list[tuple[int, bool]] | None = None
    class_names: tuple[str, ...] = ()
    positive: str | None = None
    compile_arguments: Mapping[str, Any] = field(default_factory=dict)
    metrics: list[keras.metrics.Metric] = field(default_factory=list)
    metrics_fit: bool = False
    count: Any = None
    remember: Any = None
    test_functions: dict[int, Any] = field(default_factory=dict)
    test_steps: Any = None


class Core(keras.Model):
    """The step of a learner, its outputs and its tasks: the parts that a method overrides.

    Args:
        network: Any Keras model from inputs to one logit per class; one of a class of your own has
            been called once, and takes inputs in Keras's `floatx`.
        memory: The memory, of methods that keep one.
        heads: None for a single head; for multi-head the classes of each task: the logits of other
            tasks are masked out in training and at test, each example by its own task.
        mask: "own", or "union" of the tasks that occur in a batch (the TF1 code base's form).
        seed: Seed of the model's own random draws.
        known_classes: Classes that a pretrained network knows already: a single head predicts them
            from the start, as if they had been seen in the stream.
        stream_mask: Of a single head, the classes that the softmax of the stream's loss runs over:
            "all", "present" (those of the stream batch, of all replicas together: Caccia et al.,
            ICLR 2022), "task" (those of the open task so far, as methods on pretrained networks
            have it) or "seen" (those of the stream so far). Memory examples have all: beside
            "present" and "task" the memory has to read the open task, as no ring does.
        rate_decay: gamma of the stable training regime (Mirzadeh et al., NeurIPS 2020), in (0, 1]:
            in task k (from 1) the learning rate is max(eta gamma^k, 5e-5), with eta the optimizer's
            (as in the authors' code the first task is decayed too; an eta below 5e-5 is not
            raised), and SGD's momentum begins each task at zero. None switches both off. A step
            decays the rate and puts it back, so that callbacks and files always see eta.
        rate_decay_steps: n, for a decay by steps in place of tasks: after t updates the rate is
            eta gamma^floor(t / n), so that the first n updates are not decayed.
        average_weights: d, for a second set of weights, the exponential moving average
            a <- d a + (1 - d) x after every step, with which the learner predicts and is evaluated
            (`use_weights` chooses). The average holds the network's float variables, moving
            averages of batch normalisation too. None keeps no average.
        alignment: How the head is aligned to the features of all classes when a task ends, a
            `nccl_tf.Alignment` or the name of its covariance, "shared" or "class" (Zhang et al.,
            ICCV 2023); of a single head that is the network's last layer. None for no alignment.
        rates: Factors on the update of weights by the name of their layer, or by a part of their
            path, such as {"backbone": 0.01}: a rate for each part of the network, a model within
            it too. None for one rate.
        stores: When a memory stores an example of a `fit`: in the "first_epoch", once, so that a
            reservoir is a uniform sample of all examples, however many passes a task has; or in
            "every_epoch", as some authors' code does, where a task of five passes counts as five.
            So do methods that keep statistics of examples in place of a memory.
        head: Name of the `keras.layers.Dense` that makes the logits, for `add_classes`, where the
            network does not show it: one of several in a model of a class of your own.
        name: The model's name; None for one that Keras makes.

    Raises:
        UserError: An argument is unknown, out of range or without a meaning for the method.
    """

    log_names: ClassVar[tuple[str, ...]] = ("loss",)
    """Names of the scalars that a step logs; "loss" is the first."""
    cumulative: ClassVar[tuple[str, ...]] = ()
    """Names among `log_names` that are also summed over the run."""
    memory_class: ClassVar[type[Memory] | None] = None
    """The class of memories that the method works with; None for methods without a memory."""
    one_pass: ClassVar[bool] = False
    """Whether this class passes each batch of the stream through the network once and nothing else,
    so that layers may keep a state between batches; a subclass does not inherit it."""
    columns: ClassVar[Mapping[str, Column]] = MappingProxyType({})
    """Entries of the memory for an example beside inputs, labels and tasks: by name, a function of
    the logits of a batch, `logits.raw` and `logits.masked`, and of the batch itself, that returns
    its entries [n, ...], such as `{"logits": lambda logits, batch: logits.raw}`. A memory without
    shapes gets the columns by itself, and a batch that is read from it has them in `extras`."""
    hyperparameters: ClassVar[Rows] = ()
    """The rows of the method's own numbers. An attribute of a row's name takes values in its range
    alone. A constructor that names no such argument takes it all the same, with the row's default,
    and sets the attribute. A class adds its rows to those of its bases."""
    on_replicas: ClassVar[bool] = False
    """Whether the method can run on several replicas, under a tf.distribute strategy. A subclass
    that takes gradients otherwise (`devices.TAKES_STEPS`) does not inherit it."""
    cannot: ClassVar[Mapping[str, str]] = MappingProxyType({"no_memory": "learns from its memory"})
    """Why the method cannot do what others can, by what it is, each the end of a sentence that
    begins with the method's name: "add_classes", "serving_model", "loss" (others than the default),
    "targets" (losses that have no classes), "class_weight", "optimizer_state" (other optimizers
    than SGD without momentum and weight decay, which it is only told of), "jit_compile",
    "single_tasks" (tasks one after another), "tasks_alone" (a task without those before it, which
    `learn` joins), "refreezing" (other layers trainable than when it was
    made), "no_memory" (None in place of a memory of its `memory_class`), "known_classes"; the
    options that it refuses, as `Method.refuses` of the registry; and items of
    `nccl_tf.check_learner`. A class adds its own reasons to those of its bases; "" takes one
    back."""
    network: Final[keras.Model]
    memory: Final[Any]
    heads: HeadMasks | None
    example_loss: ExampleLoss
    num_classes: Final[int]
    options: tuple[Option, ...]
    progress: Final[Progress]
    execution: Execution
    devices: Final[devices.OneDevice]
    class_weighing: Final[ClassWeights]
    nan_count: Final[NanCount]
    weights_of_adapters: adapters.AdapterWeights
    seed: Final[int]
    stores: Final[str]
    saves_memory: bool
    stores_now: keras.Variable
    _base: _Base
    _quantity_means: Final[StepMeans]
    _owns_private_names: ClassVar[bool] = True
    _checked_rows: ClassVar[Mapping[str, Hyperparameter]] = MappingProxyType({})
    _unnamed_rows: ClassVar[Sequence[Hyperparameter]] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """A learner that is not made yet, with the arguments of its constructor."""
        learner = super().__new__(cls, *args, **kwargs)
        # Keras sets the steps of a call when it makes a model.
        object.__setattr__(learner, "execution", Execution())
        object.__setattr__(learner, "_base", _Base(ConstructorArguments(cls, args, kwargs)))
        return learner

    def __init__(
        self,
        network: keras.Model,
        memory: Any = None,
        *,
        heads: Sequence[Sequence[int]] | None = None,
        mask: str = "own",
        seed: int = 0,
        known_classes: Sequence[int] | None = None,
        stream_mask: str = "all",
        rate_decay: float | None = None,
        rate_decay_steps: int | None = None,
        average_weights: float | None = None,
        alignment: Alignment | str | None = None,
        rates: Mapping[str, float] | None = None,
        stores: str = STORES[0],
        head: str | None = None,
        name: str | None = None,
        **unknown: Any,
    ):
        for row in self._unnamed_rows:
            setattr(self, row.name, unknown.pop(row.name, row.default))
        refuse_unknown(type(self), unknown)
        # The network's layers cast what they need: a cast by the learner's own policy, the one that
        # was global when it was made, would round inputs in evaluation and not in training.
        super().__init__(name=name, autocast=False)
        if isinstance(network, Core):
            raise UserError(
                f"received a {type(network).__name__}, which is a learner, as network: expected a "
                "plain keras.Model; take its network, learner.network"
            )
        received, network = network, as_network(network)
        self._base.arguments.replace({"network": received}, {"network": network})
        if not vars(type(self)).get("one_pass"):
            check_holds_no_state(network, type(self).__name__)
        check_can_be_loaded(network)
        self.network = network
        self._base.vocabularies = vocabularies(network)
        # Keras would list a part that it tracks among the layers.
        object.__setattr__(self, "weights_of_adapters", adapters.AdapterWeights(network))
        self.seed = with_argument(checked_seed(seed))
        checked_name("mask", mask, MASKS)
        self.num_classes = int(network.output_shape[-1])
        self._base.head = head
        if head is not None:
            find_head(network, self.num_classes, head)
        self.example_loss = ExampleLoss()
        self.heads = None if heads is None else HeadMasks(heads, self.num_classes, mask)
        self._base.arguments.replace({"heads": heads}, self._heads_as_argument())
        self.devices = devices.kind_in_scope()(network)
        self.devices.check_learner(type(self))
        self._base.growing = growth.Growing(network)
        self.progress = Progress(self.state, lambda: int(network.output_shape[-1]))
        self.stores = checked_name("stores", stores, STORES)
        self.saves_memory = True
        stores_now = keras.Variable(
            True, dtype="bool", trainable=False, autocast=False, name="stores_now"
        )
        object.__setattr__(self, "stores_now", stores_now)  # no state, so that Keras has none
        self._base.built_classes = self.num_classes
        self.class_weighing = ClassWeights()
        if known_classes is not None:
            self._mark_known(known_classes)
        self.options = ()
        self._check_memory(memory)
        self.memory = memory
        made = (
            AverageWeights.of(average_weights, network, self.state, self.execution.turns),
            RateDecay.of(rate_decay, rate_decay_steps, self.progress.tasks_ended),
            Rates.of(rates, network),
            StreamMask.of(stream_mask, self.progress.seen_classes, self.heads, self.state, memory),
            AlignHead.of(
                alignment,
                network,
                self.state,
                self.progress.tasks_ended,
                self.seed,
                head,
                heads=self.heads,
                average_weights=average_weights,
            ),
        )
        for option in filter(None, made):
            self.add_option(option)
        self._check_columns(self.columns)
        self._quantity_means = StepMeans(self.log_names)
        # One thread may predict while another one trains.
        self._base.wrong_label, self._base.wrong_at_test = (
            checks.WrongLabel(self.devices.gather, self.devices.count == 1) for _ in range(2)
        )
        self.nan_count = NanCount(self.devices.gather)
        self._base.made_with = [id(v) for v in self.trainable_variables]
        self._warn_of_shared_network()
        if own := own_training(received):
            self.warn_once(
                "training",
                f"the network's class {type(received).__name__} has {', '.join(own)} of its own, "
                f"which no learner calls: {type(self).__name__} takes its own steps, by the loss "
                "of compile; put augmentation into layers of the network, and another loss into "
                "compile",
            )
        self.built = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        check_private_names(cls)
        super().__init_subclass__(**kwargs)
        cls._checked_rows = rows_of(cls)
        cls._unnamed_rows = show_arguments(cls, Core, cls._checked_rows)

    @property
    def steps_per_execution(self) -> int:
        """Steps in one call of the graph, as in Keras, which asks for it in each of its verbs."""
        return self.execution.steps

    @steps_per_execution.setter
    def steps_per_execution(self, steps: int) -> None:
        self.execution.steps = steps

    def _note_made(self) -> None:
        """Called when the constructor of the object's class has ended."""
        self._base.is_made = True

    # ---- one step --------------------------------------------------------------------------------

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One step: learn from the stream batch and the memory, one update, write the memory, log.

        A step whose loss or gradient is not finite is skipped and counted: weights, batch-norm
        statistics, memory, optimizer and logs stay as they were before it.
        """
        self.execution.note_trace()
        batch = self._stream_batch(data)
        notes = [option.before_step(batch) for option in self.options]
        step = checked_applied(self.update(batch), self.log_names)
        is_learned = step.is_learned
        self.progress.count_step(is_learned, self.devices.count == 1)
        learned = batch._replace(weights=tf.where(is_learned, batch.weights, 0.0))
        for option, note in reversed(list(zip(self.options, notes, strict=True))):
            option.after_step(learned, step, note)
        self.after_step(without_stream_classes(learned), step)
        return self._log(learned, step)

    def update(self, batch: Batch) -> Step:
        """Learn a batch and apply the update unless it is not finite; returns the applied step."""
        return self.learn_and_apply(self.learn, batch)

    def learn(self, batch: Batch) -> Step:
        """A plain step on the stream batch: the gradient of `training_loss`."""

        def loss_of() -> tuple[tf.Tensor, Any]:
            logits = self.forward(batch, training=True)
            regularization = self.regularization()
            loss, logs = self.training_loss(logits, batch)
            return loss + regularization, (logits, logs)

        gradients, (logits, logs) = self.gradient(loss_of)
        return Step(gradients, logits, logs)

    def training_loss(self, logits: Logits, batch: Batch) -> tuple[tf.Tensor, Logs]:
        """The loss of a step on the stream batch alone, and its logs.

        Args:
            logits: Of the batch.
            batch: The stream batch.

        Returns:
            A scalar, and scalars by the names in `log_names`, with "loss".
        """
        loss = self.stream_loss(logits, batch)
        return loss, {"loss": loss}

    def stream_loss(self, logits: Logits, batch: Batch) -> tf.Tensor:
        """The training loss of the stream batch, a scalar: the mean of `stream_losses` by weights.

        For methods to call; one that has other losses overrides `stream_losses`.
        """
        return weighted_mean(self.stream_losses(logits, batch), batch.weights)

    def stream_losses(self, logits: Logits, batch: Batch) -> tf.Tensor:
        """The training loss of each example of the stream batch, [n]."""
        return self.example_loss.of(self.example_loss.for_stream(logits.masked, batch), batch)

    def regularization(self) -> tf.Tensor | float:
        """The sum of the network's own losses; those of activities are of its last pass."""
        of_layers = self.devices.losses()
        losses = [tf.reduce_sum(at_least_float32(loss)) for loss in of_layers]
        return tf.add_n(losses) if losses else 0.0

    def gradient(
        self, loss_of: Callable[[], tuple[tf.Tensor, Any]], at: Any = None, scale: Any = None
    ) -> tuple[list[tf.Tensor], Any]:
        """The gradient of a loss, free of the loss scale of mixed_float16.

        Args:
            loss_of: Returns a scalar loss and anything else.
            at: Tensors to differentiate by; None for the trainable variables.
            scale: A loss scale; None for the optimizer's.

        Returns:
            A tensor per trainable variable, or for each of `at`, and what else `loss_of` returned.
        """
        with tf.GradientTape() as tape:
            if at is not None:
                tape.watch(at)
            loss, auxiliary = loss_of()
        return self.taped_gradients(tape, loss, at, scale), auxiliary

    def taped_gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, sources: Any = None, scale: Any = None
    ) -> list[tf.Tensor]:
        """The gradients of a loss that a tape has recorded, free of the loss scale.

        Args:
            tape: Has watched the sources.
            loss: Scalar.
            sources: A list to differentiate by; None for the trainable variables.
            scale: As for `gradient`.
        """
        sources = self.trainable_variables if sources is None else sources
        checks.check_learns(sources)
        scale = loss_scale(self.optimizer) if scale is None else scale
        # What flows back is scaled, so that float16 does not lose it.
        start = None if scale is None else tf.cast(scale, loss.dtype)
        # TensorFlow's zeros, `tf.UnconnectedGradients.ZERO`, know no dtype of Keras's variables; an
        # embedding's gradient is no dense tensor.
        gradients = self.devices.mean(
            [
                tf.zeros(source.shape, source.dtype)
                if gradient is None
                else tf.convert_to_tensor(gradient)
                for gradient, source in zip(
                    tape.gradient(loss, sources, output_gradients=start), sources, strict=True
                )
            ]
        )
        return gradients if scale is None else [g / tf.cast(scale, g.dtype) for g in gradients]

    def learn_and_apply(self, learn: Callable[..., Step], *batches: Any) -> Step:
        """Take gradients and apply the update unless it is not finite.

        Args:
            learn: From the batches to a step with gradients, such as `self.learn`.
            *batches: The stream batch, then memory batches.

        Returns:
            The applied step.
        """
        written = self.devices.written(self.outputs, batches[0], self.run_eagerly)
        before = [(v, tf.identity(v.value)) for v in (*written, *self._base.of_steps)]
        step = learn(*batches)
        loss = self._nan_of_inputs(batches[0], step.loss)
        accepted = self._accepts(loss, checks.gradient_size(step.gradients))
        self.devices.accept(
            accepted, before, self.variables, self.optimizer,
            apply=lambda: self.apply_step(step), skip=self._skip_of(step),
        )  # fmt: skip
        return self._applied(step, accepted)

    def _nan_of_inputs(self, batch: Batch, loss: tf.Tensor) -> tf.Tensor:
        """A loss, or NaN where an input of a batch is NaN and no gradient would show it.

        Gradients of the first layers do. Where these are frozen, a relu may hide it.
        """
        layers = layers_of(self.network)
        if not any(layer.weights and not layer.trainable for layer in layers):
            return loss
        has_nan = rows_with_nan(batch.inputs)
        if has_nan is None:
            return loss
        return tf.where(tf.reduce_any(has_nan), tf.constant(np.nan, loss.dtype), loss)

    def _skip_of(self, step: Step) -> Callable[[], None] | None:
        """A function that tells the loss scale of a skipped step; None where there is no scale."""
        if loss_scale(self.optimizer) is None:
            return None
        # It applies nothing that is not finite, and halves its scale.
        return lambda: self.apply([g * np.nan for g in step.gradients]) if step.gradients else None

    def _accepts(self, loss: tf.Tensor, size: tf.Tensor | float = 0.0) -> tf.Tensor:
        """bool scalar: whether a step may be applied. It is finite, and learning has not failed.

        Args:
            loss: Scalar.
            size: A sum of squares of the gradient, finite only where all of it is.
        """
        # Of the rate times the gradient too: a rate of 1e30 makes weights not finite otherwise.
        rate, size = (tf.cast(n, tf.float32) for n in (self.optimizer.learning_rate, size))
        finite = tf.math.is_finite(size + size * tf.square(rate) + tf.cast(loss, tf.float32))
        return finite & self.progress.has_not_failed()

    def _applied(self, step: Step, accepted: tf.Tensor) -> Step:
        """A step in the form that all have once they are applied, or skipped."""
        logs = step.with_all_logs(self.log_names).logs
        # One choice for all of them, where one for each would be as many kernels.
        values = tf.where(accepted, tf.stack(list(logs.values())), tf.constant(np.nan))
        logs = dict(zip(logs, tf.unstack(values, len(logs)), strict=True))
        return Step([], step.logits, logs, values=values, accepted=accepted)

    def apply_step(self, step: Step) -> None:
        """Apply a finite step; a method whose own state moves with it writes that here."""
        self.apply(step.gradients)

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Apply ONE optimizer update with gradients whose loss scale is undone."""
        scale = loss_scale(self.optimizer)
        if scale is not None:
            gradients = [g * tf.cast(scale, g.dtype) for g in gradients]
        with ExitStack() as stack:
            for option in self.options:
                stack.enter_context(option.applying())
            self.optimizer.apply(gradients, self.trainable_variables)

    def after_step(self, batch: Batch, step: Step) -> None:
        """Called in the graph after every step; stores the batch in the memory.

        Args:
            batch: The whole stream batch, with weights 0 if the step was skipped.
            step: The applied step, with the logits of the batch from before the update.
        """
        if self.memory is not None:
            self.store(batch, step.logits)

    def store(self, batch: Batch, logits: Logits) -> None:
        """Offer a batch to the memory, with the method's `columns`.

        Args:
            batch: Examples; those of weight 0 are not stored.
            logits: Of the batch.
        """
        entries = {name: column(logits, batch) for name, column in self._kept_columns().items()}
        self.memory.write(batch._replace(extras={**batch.extras, **entries}) if entries else batch)

    def _log(self, batch: Batch, step: Step) -> dict[str, tf.Tensor]:
        """Update the metrics; returns their results.

        Args:
            batch: The stream batch, with weights 0 if the step was skipped.
            step: The applied step.
        """
        self._quantity_means.update_state(step.stacked_logs())
        if self.example_loss.has_classes:
            self.progress.see(batch)
        logits = step.logits.masked
        targets, weights = self.example_loss.measured(batch, logits)
        measured = map(self.devices.rows, (targets, logits, weights))
        return self.compute_metrics(None, *measured)

    def get_metrics_result(self) -> dict[str, tf.Tensor]:
        """As in Keras; the loss over no step or example is NaN, not 0."""
        results, place = super().get_metrics_result(), self.log_names.index("loss")
        # Keras has no metric of its own for the logs of steps, and one for examples at test.
        steps, tested = self._quantity_means, loss_mean(self)
        total, count = (
            tf.cast(tf.convert_to_tensor(of_steps.value)[place], at_test.dtype) + at_test.value
            for of_steps, at_test in ((steps.total, tested.total), (steps.count, tested.count))
        )
        results["loss"] = total / count
        return results

    # ---- the network's outputs -------------------------------------------------------------------

    def outputs(self, inputs: Any, tasks: tf.Tensor | None, training: bool) -> tf.Tensor:
        """The network's outputs for inputs [n, ...]: logits [n, classes], before any mask.

        For methods to override whose network depends on the task.

        Args:
            inputs: As the stream delivers them.
            tasks: int64 [n], the task of each example; None where it is not known.
            training: As for Keras models.
        """
        del tasks
        return self.network(inputs, training=training)

    def forward(self, batch: Batch, training: bool) -> Logits:
        """Logits of a batch, raw and as the training loss sees them."""

        def outputs(part: Batch) -> list[tf.Tensor]:
            return [self.outputs(part.inputs, part.tasks, training)]

        (raw,) = self.devices.outputs(outputs, batch)
        return Logits(raw, self.masked(raw, batch))

    def masked(self, logits: tf.Tensor, batch: Batch) -> tf.Tensor:
        """Raw logits as the training loss sees them: multi-head masked, single head not."""
        value = self.example_loss.masked_value
        if self.heads is None or value is None:
            return at_least_float32(logits)
        return self.heads.masked(logits, batch.tasks, batch.weights, value)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Logits [n, classes] with masked classes at -1e9.

        Multi-head: the classes of other tasks than the example's, where the input carries tasks.
        Single head: at test, the classes not seen so far in training.
        """
        inputs, tasks = split_inputs(inputs)
        tasks = None if tasks is None else tf.cast(tasks, tf.int64)
        logits = self.outputs(inputs, tasks, training)
        if training and self.heads is None:
            return logits
        return self._masked_for_test(logits, tasks)

    def _masked_for_test(self, logits: tf.Tensor, tasks: tf.Tensor | None) -> tf.Tensor:
        """Logits [n, classes] of examples whose tasks (int64 [n]) may be known, masked for test."""
        value = self.example_loss.masked_value
        if value is None:
            return at_least_float32(logits)
        if self.heads is not None:
            return logits if tasks is None else self.heads.masked(logits, tasks, value=value)
        seen = self.progress.seen_among(self.num_classes)
        return select_logits(seen | tf.logical_not(tf.reduce_any(seen)), logits, value)

    @property
    def _logits_dtype(self) -> tf.DType:
        """Of masked logits."""
        return tf.float64 if self.network.compute_dtype == "float64" else tf.float32

    def as_batch(self, data: Any, task: tf.Tensor | None = None) -> Batch:
        """The data of `fit` or `evaluate` as a batch, with targets for the compiled loss.

        Inputs in float64 become Keras's `floatx`, unless the network's weights are in float64. What
        a Keras mask leaves out of the outputs at each place weighs 0.

        Args:
            data: As Keras delivers it.
            task: int64 scalar, of examples that come without one; None for the latest task.
        """
        task = self.progress.task.value if task is None else task
        for leaf in tf.nest.flatten(data[0]):  # of a generator too
            check_not_ragged(leaf, "inputs")
        loss = self.example_loss
        batch = as_batch(data, task, loss.targets, loss.place_axes)
        if not any(v.dtype == "float64" for v in self.network.variables):
            batch = batch._replace(inputs=tf.nest.map_structure(as_floatx, batch.inputs))
        mask = place_mask(self.network, batch.inputs) if loss.place_axes else None
        if mask is not None:
            batch = loss.masked_places(batch, mask)
        return loss.counted(batch)

    def _stream_batch(self, data: Any) -> Batch:
        """The data of `fit` as a batch, as the options want it.

        A batch with a wrong label, weight or task gets weights NaN, so that its step is skipped as
        one without a finite loss is; `fit` then raises an error that names what is wrong. Batches
        that the host has checked are not looked at again.
        """
        batch = self.as_batch(data)
        if not self.execution.known.labels_checked:
            batch, wrong = self._base.wrong_label.find(
                data, batch, self.example_loss, self._classes, self._class_table(),
                self._base.vocabularies,
            )  # fmt: skip
            weights = tf.where(tf.reduce_any(wrong), float("nan"), batch.weights)
            batch = batch._replace(weights=weights)
        batch = self.devices.gather(batch)
        self.build_memory(batch)
        if self.example_loss.place_axes:
            batch = with_place_weights(batch, self.memory, self.example_loss)
        batch = self.class_weighing.weighed(batch)
        for option in self.options:
            batch = option.stream_batch(batch)
        return batch

    # ---- what memories keep -----------------------------------------------------------------

    def store_from_now(self, stores: bool) -> None:
        """Choose whether examples that come from now on are stored and counted in statistics.

        `fit` does so where an epoch begins. It is no state.
        """
        self.stores_now.assign(stores)
        for memory in self.memories():
            memory.set_stores(stores)

    def build_memory(
        self, batch: Batch, task_classes: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Allocate the memories that were built without shapes.

        Args:
            batch: Examples, as `as_batch` makes them; their number does not matter.
            task_classes: The classes of each task, where there are no heads to tell.

        Raises:
            UserError: The examples have no fixed shape.
        """
        waiting = [memory for memory in self.memories() if not memory.is_allocated]
        if waiting and self.heads is not None:
            task_classes = self.heads.classes
        for memory in waiting:
            # Variables are made outside of the graph that a first batch is traced in.
            with tf.init_scope(), self.distribute_strategy.scope():
                memory.build_for(batch, self._extras(memory, batch), task_classes)

    def _extras(self, memory: Memory, batch: Batch) -> Extras:
        """The further columns of a memory for examples such as those of a batch.

        Another memory than the learner's own keeps those alone that it names.
        """
        columns = self._kept_columns()
        if memory is not self.memory:
            columns = {name: column for name, column in columns.items() if name in memory.extras}
        # There is a column's entry at each place of the targets.
        places = batch.labels.shape[1 : len(self.network.output_shape) - 1]
        extras = extras_of(columns, self.num_classes, places, batch)
        return extras if batch.place_weights is None else extras | place_column(batch.place_weights)

    def _kept_columns(self) -> dict[str, Column]:
        """The columns of the method and of the options, by name."""
        options = (column for option in self.options for column in option.columns.items())
        return {**self.columns, **dict(options)}

    def _check_columns(self, columns: Mapping[str, Column]) -> None:
        """Check that the memory has a place for columns, where its shapes are known.

        Raises:
            UserError: It has not.
        """
        if columns and self.memory is not None and self.memory.is_allocated:
            places = self.network.output_shape[1:-1]
            wanted = extras_of(columns, self.num_classes, places, self.memory.specs)
            check_columns(self.memory, wanted, type(self).__name__)

    # ---- tasks -----------------------------------------------------------------------------------

    def on_task_begin(self, task_id: int) -> None:
        """Called once when a task begins; for methods to extend."""

    def on_task_end(self, task_id: int) -> None:
        """Called once when a task ends, after the memory has closed it; for methods to extend."""

    def close_task(self, task_id: int) -> None:
        """Close a task in the memory, then in the method, `on_task_end`. Graph code for devices.

        `end_task` calls it. A method that looks at the memory as it was before extends it.

        Args:
            task_id: The task; an int64 scalar in a file for devices.
        """
        # A memory that is not allocated has seen nothing of the task.
        if self.memory is not None and self.memory.is_allocated:
            self.memory.close_task(task_id)
        self.on_task_end(task_id)

    @one_at_a_time
    @alone
    def begin_task(self, task_id: int) -> None:
        """Open a task. Opening the task that is open changes nothing.

        Args:
            task_id: The task's number, from 0.

        Raises:
            UserError: Another task is open, or as for `check_head`.
        """
        self.check_head(task_id)
        if not self.progress.begin_task(task_id):
            return
        self.execution.known = HostFacts()  # of the examples of another task
        for option in self.options:
            option.on_task_begin(task_id)
        self.on_task_begin(task_id)

    @one_at_a_time
    @alone
    def end_task(self) -> None:
        """Close the open task. Where none is open, nothing changes."""
        if not bool(self.progress.task_is_open.numpy()):
            return
        task_id = int(self.progress.task.numpy())
        if unpassed := task_pass.not_passed(self.options):
            self.warn_once("unpassed", hints.unpassed_warning(type(unpassed[0]).__name__, task_id))
        self.close_task(task_id)
        self.progress.close_task()
        self._weigh_classes({})
        self.progress.tasks_ended.assign_add(1)
        for option in self.options:
            option.on_task_end(task_id)
            option.has_passed = False

    def _weigh_classes(self, factors: Mapping[int, float]) -> None:
        """Weigh examples by their classes from now on, those of memories too.

        Args:
            factors: By number; 1 for classes that are not among them.
        """
        if not (factors or self.class_weighing.are_set):
            return
        with self.distribute_strategy.scope():
            changes = self.class_weighing.set(factors, max(self.num_classes, 2))
        if changes:
            for memory in self.memories():
                memory.weigh_by(self.class_weighing)
            self.execution.discard_graphs()
            self.make_graphs()

    def check_head(self, task_id: int) -> None:
        """Check that there is a head for a task, where there are heads.

        Raises:
            UserError: There is none, or the task is no whole number from 0.
        """
        checks.check_task_id(task_id)
        if self.heads is not None and task_id >= len(self.heads.classes):
            checks.raise_no_head(task_id, len(self.heads.classes))

    @property
    def _classes(self) -> int:
        """The number of classes that the outputs stand for."""
        return self.example_loss.classes_of(self.num_classes)

    def _class_table(self) -> np.ndarray | None:
        """bool [tasks, classes]: the labels that each task may have; None for all classes.

        Those of the heads that the memory has a place for as well.
        """
        heads = None if self.heads is None else self.heads.table
        task_classes = getattr(self.memory, "task_classes", None)
        if task_classes is None:
            return heads
        table = class_table(task_classes, self._classes)
        if heads is None:
            return table
        count = min(len(table), len(heads))
        return table[:count] & heads[:count]

    @property
    def state_variables(self) -> dict[str, keras.Variable]:
        """All state that learning depends on: weights, memory, generators, optimizer and counters.

        The step log has a state of its own (`StepLog.state`).
        """
        for memory in self.memories():
            memory.blank_spare_row()
        variables = [*self.variables, *self.optimizer.variables]
        variables += [v for memory in self.memories() for v in memory.variables]
        return {f"{i:04d} {v.name}": v for i, v in enumerate(variables)}

    @property
    def skipped(self) -> keras.Variable:
        """int64 scalar: steps skipped so far, which had no finite loss and gradient."""
        return self.progress.skipped

    # ---- for methods -----------------------------------------------------------------------------

    def state(
        self,
        name: str,
        shape: growth.Shape,
        dtype: str,
        value: float = 0,
        grown: keras.Variable | None = None,
        of_steps: bool = False,
    ) -> keras.Variable:
        """A variable of the method's own, saved with the learner; no step of an optimizer moves it.

        Args:
            name: Its name.
            shape: Its shape; or, of a variable that grows with the head, a variable of the network
                whose shape it has, such as `network.layers[0].kernel`, or a function that returns
                the current shape.
            dtype: Its dtype, whatever the policy.
            value: Every entry at first, and new entries of a variable that grows.
            grown: A variable of the network that new entries are copied from instead.
            of_steps: Whether a step that is skipped puts it back. So `combine`, `learn` or `replay`
                may assign it, which run before it is known whether a step is applied.

        Raises:
            UserError: The dtype is int32.
        """
        if tf.as_dtype(dtype) == tf.int32:
            raise UserError(
                f"received int32 as the dtype of the state {name!r}, which TensorFlow keeps on the "
                "host, away from the step's program: expected int64, a float or bool"
            )
        variable = self.add_weight(
            name=name, shape=growth.shape_of(shape), dtype=dtype, trainable=False, autocast=False,
            initializer=keras.initializers.Constant(value),
        )  # fmt: skip
        self._base.growing.add(variable, shape, value if grown is None else grown)
        if of_steps:
            self._base.of_steps.append(variable)
        return variable

    def add_option(self, option: Option) -> None:
        """Let an option take part in every step from the next one on.

        It takes the place of one of the same class.

        Args:
            option: An object of a subclass of `nccl_tf.Option`.

        Raises:
            UserError: It is no option, the method refuses it, the memory has no place for its
                columns, or it runs on one device only.
        """
        if not isinstance(option, Option):
            raise UserError(
                f"received {option!r} as an option, expected an object of a subclass of "
                "nccl_tf.Option: make one, such as add_option(MyOption(learner))"
            )
        named = {name: value for name, value in option.get_config().items() if value is not None}
        for reason in filter(None, map(self.why_not, named)):
            raise UserError(
                f"received {' and '.join(f'{name}={value!r}' for name, value in named.items())}, "
                f"but {type(self).__name__} {reason}: leave {' and '.join(named)} out"
            )
        self.devices.check_option(option)
        self._check_columns(option.columns)
        others = (each for each in self.options if type(each) is not type(option))
        self.options = (option, *others)
        self.execution.discard_graphs()

    def option(self, kind: type[AnOption]) -> AnOption | None:
        """The option of a class; None where there is none."""
        return next((option for option in self.options if isinstance(option, kind)), None)

    def memories(self) -> list[Memory]:
        """All memories that the method keeps."""
        return [] if self.memory is None else [self.memory]

    @classmethod
    def why_not(cls, what: str) -> str:
        """Why the method cannot do something, a key of `cannot`; "" where it can."""
        stated = (vars(base).get("cannot", {}) for base in cls.__mro__)
        return next((reasons[what] for reasons in stated if what in reasons), "")

    def warn_once(self, key: str, message: str | None) -> None:
        """Log a warning that this learner has not given before.

        Args:
            key: Names the warning.
            message: Its text; None where there is nothing to warn of.
        """
        if message and key not in self._base.said:
            self._base.said.add(key)
            LOGGER.warning("%s", message)

    def make_graphs(self) -> None:
        """Make graphs beside the steps, at `compile` and when the head has grown.

        For methods to extend that have some: loss, loss scale and the variables' shapes are part
        of a graph.
        """

    def check_rate(self) -> None:
        """Raise UserError at a learning rate that the method is not defined at.

        By default it is one that is not finite.
        """
        checks.check_rate_is_finite(self.optimizer)

    def _warn_of_shared_network(self) -> None:
        """Warn once that another learner trains layers of the network."""
        if other := hints.other_owner(self, self.network):
            self.warn_once(
                "network",
                f"the network of this {type(self).__name__} is that of another learner, {other}: "
                "each goes on from the weights that the other leaves; to compare them build a "
                "network for each",
            )

    def _check_not_behind(self) -> None:
        """Check that the network has not grown without the learner.

        Raises:
            UserError: Another learner has let it grow.
        """
        if self._base.growing.is_behind():
            raise UserError(
                f"received a {type(self).__name__} of {self.num_classes} classes whose network has "
                "grown since, by another learner: make the learner again, around the network as it "
                "is"
            )

    def _check_option(self, name: str, value: Any) -> None:
        """Refuse an option that is set, where the method says why it has no meaning for it.

        Raises:
            UserError: The method refuses it.
        """
        if reason := self.why_not(name):
            raise UserError(
                f"received {name}={value!r}, but {type(self).__name__} {reason}: leave {name} out"
            )

    def _check_memory(self, memory: Any) -> None:
        name = type(self).__name__
        if self.memory_class is None:
            if memory is not None:
                raise UserError(
                    f"received a {type(memory).__name__} as the memory of {name}, which keeps "
                    "none: leave it out, or take a method for the memory"
                )
            return
        if memory is None and not self.why_not("no_memory"):
            return
        check_memory(name, memory, self.memory_class)
        hints.warn_of_shared_memory(memory)

    def _mark_known(self, classes: Sequence[int]) -> None:
        self._check_option("known_classes", classes)
        try:
            known = sorted(map(operator.index, classes))
        except TypeError as error:
            raise UserError(
                f"received known_classes={classes!r}, expected class numbers such as [0, 1]"
            ) from error
        if self.heads is not None:
            raise UserError(
                f"received known_classes={known} and heads: a head masks by its own classes alone, "
                "so leave known_classes out"
            )
        # One output may be for two classes: the loss, which comes later, says it.
        count = self.progress.seen_classes.shape[0]
        outside = [label for label in known if not 0 <= label < count]
        if outside:
            raise UserError(
                f"received {outside[0]} among known_classes, but the network has logits for the "
                f"classes 0 to {count - 1}"
            )
        self.progress.seen_classes.assign(np.isin(np.arange(count), known))
        self._base.arguments.replace({"known_classes": classes}, {"known_classes": known})

    def _heads_as_argument(self) -> dict[str, Any]:
        return {"heads": None if self.heads is None else list(map(list, self.heads.classes))}


show_arguments(Core, Core)
