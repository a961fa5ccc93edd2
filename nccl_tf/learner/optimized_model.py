"""A task model with one optimizer: gradients, the update, and the rule that skips a step."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.learner import replicas
from nccl_tf.learner.fitting.compile_checks import check_compile
from nccl_tf.learner.fitting.fit_checks import SKIPS_IN_A_ROW
from nccl_tf.learner.fitting.train_loop import fast_steps
from nccl_tf.learner.gradients.dense_chain import descend, gradient_size, is_plain_sgd
from nccl_tf.learner.gradients.loss_scaled_model import LossScaledModel
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.rate_decay import (
    check_has_a_rate,
    check_rate_is_finite,
    checked_decay,
    rate_of_step,
)
from nccl_tf.learner.options.stream_mask import check_loss
from nccl_tf.learner.step import Step, check_logs
from nccl_tf.networks.inspection import check_runs_under_xla, computes_in_float16
from nccl_tf.variables import assign_all


class OptimizedModel(LossScaledModel):
    """Applies one optimizer update per step, unless the step is not finite.

    Args:
        network: Any Keras model from inputs to one logit per class.
        rate_decay: gamma of the stable training regime (Mirzadeh et al., NeurIPS 2020), in (0, 1]:
            in task k (from 1) the learning rate is max(eta gamma^k, 5e-5), with eta the optimizer's
            (as in the authors' code the first task is decayed too; an eta below 5e-5 is not
            raised), and SGD's momentum begins each task at zero. None switches both off. A step
            decays the rate and puts it back, so that callbacks and files always see eta.
        rate_decay_steps: n, for a decay by steps in place of tasks: after t updates the rate is
            eta gamma^floor(t / n), so that the first n updates are not decayed.
        **kwargs: As for `learner.task_model.TaskModel`.

    Raises:
        UserError: An argument is out of range, or a decay of the rate means nothing to the method.
    """

    log_names: ClassVar[tuple[str, ...]] = ("loss",)
    """Names of what a step logs."""
    default_loss_because: ClassVar[str] = ""
    """Why the method has a meaning for the default loss alone, the end of a sentence that begins
    with its name; "" where it takes any loss with a value for each example."""
    on_replicas: ClassVar[bool] = False
    """Whether the method can run on several replicas, under a tf.distribute strategy."""
    fast_paths: ClassVar[tuple[str, ...]] = ()
    """Faster paths that this class is known to be right on; a subclass does not inherit them.

    "deferred_logs": metrics and logs are updated once for a stack of batches. "prefetch": the
    memory is read before the first step of a stack and written after its last one. "dense":
    gradients of a chain of dense layers are taken in one pass over the rows of both batches.
    """
    steps_per_execution: int

    def __init__(
        self,
        network: keras.Model,
        *,
        rate_decay: float | None = None,
        rate_decay_steps: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.rate_decay, self.rate_decay_steps = checked_decay(self, rate_decay, rate_decay_steps)
        self.replicas = replicas.current()
        self.replicas.check_learner(self)
        self.skipped = self._state("skipped", (), "int32", 0)
        self.skipped_in_a_row = self._state("skipped_in_a_row", (), "int32", 0)
        self._jit = False
        self._is_plain_sgd = False

    def declares(self, path: str) -> bool:
        """Whether the learner's own class, not one that it inherits from, declares a fast path."""
        return path in vars(type(self)).get("fast_paths", ())

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        """The gradients of one step on a stream batch and memory batches. It applies nothing."""
        raise NotImplementedError

    def learn_on_replicas(self, *batches: Batch) -> Step:
        """The step of all replicas together, each with its slices of the batches.

        For a gradient that is the mean over all examples: those of replicas are summed by shares.
        """
        return self.replicas.mean_step(self.learn(*batches), batches)

    def compile(
        self,
        optimizer: Any = "sgd",
        loss: Any = None,
        metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int | None = None,
        jit_compile: bool = False,
        auto_scale_loss: bool = True,
    ) -> None:
        """Choose optimizer, loss and metrics.

        Args:
            optimizer: A Keras optimizer; with `keras.optimizers.SGD` the update is the paper's.
            loss: None for softmax cross-entropy on logits with class numbers; else any Keras loss
                with a value for each example: an object, a function of targets and outputs, or the
                name of one. Masks and heads apply with the categorical cross-entropies. With a
                target at each place, an example's loss is the mean over its places, those of
                `ignore_class` left out, so that each example counts the same.
            metrics: List of Keras metrics or their names; padding never counts.
            run_eagerly: As in Keras.
            steps_per_execution: The most steps in one call of the graph; None for a number that is
                fast (50 with convolutions, else 200; 1 on several replicas). `fit` lowers it so
                that an epoch of `steps_per_epoch`, and the number of batches after which a callback
                wants to be called, are whole calls. Batch callbacks are called once for each call
                of the graph, with the number of its last batch and the means so far.
            jit_compile: Compile gradients and update with XLA. The memory stays outside, because a
                write inside an XLA cluster copies every slot.
            auto_scale_loss: As in Keras, where a layer of the network computes in float16.

        Raises:
            UserError: The learning rate is not finite, or a schedule beside `rate_decay`, the
                network ends in softmax or sigmoid and the loss takes logits, or in a linear layer
                and it takes probabilities, the loss was left out and the outputs are not
                [n, classes], the method, its heads or its memory have no meaning for the loss,
                `jit_compile` meets inputs of strings, or optimizer or metrics have another form.
        """
        check_compile(optimizer, metrics)
        self.example_loss = self.checked_loss(loss)
        optimizer = keras.optimizers.get(optimizer)
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if auto_scale_loss and not scales and computes_in_float16(self.network):
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        # Keras counts padded examples in `metrics`; in `weighted_metrics` their weight 0 tells.
        super().compile(
            optimizer=optimizer,
            weighted_metrics=[self.example_loss.metric(metric) for metric in metrics or []],
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution or fast_steps(self.network),
            jit_compile=False,
            auto_scale_loss=auto_scale_loss,
        )
        self.example_loss.check_network(self.network)
        if jit_compile:
            check_runs_under_xla(self.network)
        self.replicas.prepare(self, jit_compile)
        # Built here, because a first step that creates variables is traced twice.
        self.optimizer.build(self.trainable_variables)
        self._trained = [id(variable) for variable in self.trainable_variables]
        self._jit = bool(jit_compile)
        self._is_plain_sgd = is_plain_sgd(self.optimizer, self.trainable_variables)
        check_has_a_rate(self)
        check_rate_is_finite(self.optimizer)
        # Keras tracks the metrics of a plain dictionary, and would list them twice.
        self._compile_arguments = MappingProxyType({
            "loss": loss, "metrics": metrics, "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution, "jit_compile": jit_compile,
            "auto_scale_loss": auto_scale_loss,
        })  # fmt: skip
        self.make_graphs()

    def make_graphs(self) -> None:
        """Make what is called beside the steps, at `compile` and when the head has grown.

        For methods to override that have graphs of their own: loss, loss scale and the variables'
        shapes are part of a graph.
        """

    def check_rate(self) -> None:
        """Raise UserError at a learning rate that the method is not defined at.

        By default it is one that is not finite.
        """
        check_rate_is_finite(self.optimizer)

    def checked_loss(self, loss: Any) -> ExampleLoss:
        """What `compile` received as loss, where the method has a meaning for it.

        Raises:
            UserError: It has none.
        """
        example_loss = ExampleLoss(loss, len(self.network.output_shape))
        example_loss.check(type(self).__name__, self.default_loss_because, self.heads is not None)
        check_loss(self, example_loss)
        return example_loss

    def get_compile_config(self) -> dict[str, Any] | None:
        """What `compile` received, for saving; None before it."""
        if not self.compiled:
            return None
        arguments = {"optimizer": self.optimizer, **self._compile_arguments}
        return keras.saving.serialize_keras_object(arguments)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as the saved model was."""
        self.compile(**keras.saving.deserialize_keras_object(config))

    def under_xla(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of tensors under XLA, where `compile` asked for it."""
        if not self._jit:
            return function
        return tf.function(function, jit_compile=True, autograph=False)

    @contextmanager
    def decayed_rate(self) -> Iterator[None]:
        """The step's learning rate in the optimizer, where `rate_decay` is set. Graph code."""
        if self.rate_decay is None:
            yield
            return
        rate = self.optimizer.learning_rate
        eta = tf.identity(rate.value)
        rate.assign(rate_of_step(self, eta))
        yield
        rate.assign(eta)

    def learn_and_apply(self, *batches: Batch) -> Step:
        """Learn batches and apply the update unless it is not finite.

        Returns:
            The applied step.
        """
        return self.under_xla(self._one_step)(*batches)

    def _one_step(self, *batches: Batch) -> Step:
        statistics = [tf.identity(v.value) for v in self.network.non_trainable_variables]
        step = self.replicas.learn(self, *batches)
        accepted = self.accepts(step.logs["loss"], gradient_size(step.gradients))
        self.replicas.apply(self, step, accepted, statistics)
        return self.applied(step, accepted)

    def accepts(self, loss: tf.Tensor, size: tf.Tensor | float = 0.0) -> tf.Tensor:
        """bool scalar: whether a step may be applied. It is finite, and learning has not failed.

        Args:
            loss: Scalar.
            size: A sum of squares of the gradient, finite only where all of it is.
        """
        # Of the rate times the gradient too: a rate of 1e30 makes weights not finite otherwise.
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        sizes = tf.cast(size, tf.float32) * tf.stack([1.0, tf.square(rate)])
        finite = tf.reduce_all(tf.math.is_finite(sizes + tf.cast(loss, tf.float32)))
        return finite & (self.skipped_in_a_row.value < SKIPS_IN_A_ROW)

    def applied(self, step: Step, accepted: tf.Tensor) -> Step:
        """A step in the form that all have once they are applied, or skipped."""
        nan, logs = tf.constant(np.nan), self.with_all_logs(step).logs
        logs = {name: tf.where(accepted, value, nan) for name, value in logs.items()}
        return Step([], step.logits, logs)

    def with_all_logs(self, step: Step) -> Step:
        """A step with every name of `log_names` in its logs, float32; NaN for the others."""
        check_logs(self.log_names, step.logs)
        logs = {name: tf.cast(step.logs.get(name, np.nan), tf.float32) for name in self.log_names}
        return step._replace(gradients=list(step.gradients), logs=logs)

    def apply_step(self, step: Step) -> None:
        """Apply a step that is finite; a method whose own state moves with it writes that here."""
        self.apply(step.gradients)

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Apply ONE optimizer update with gradients whose loss scale is undone."""
        if self._is_plain_sgd:
            descend(self.trainable_variables, gradients, self.optimizer.learning_rate)
            self.optimizer.iterations.assign_add(1)
            return
        scale = self.loss_scale()
        if scale is not None:
            gradients = [g * tf.cast(scale, g.dtype) for g in gradients]
        self.optimizer.apply(gradients, self.trainable_variables)

    def skip_step(self, step: Step, statistics: Sequence[tf.Tensor]) -> None:
        """Undo what the forward passes of a skipped step changed."""
        assign_all(self.network.non_trainable_variables, statistics)
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            # It applies nothing that is not finite, and halves its scale.
            self.apply([g * np.nan for g in step.gradients])

    def on_task_begin(self, task_id: int) -> None:
        if self.rate_decay is None:
            return
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        for momentum in getattr(inner, "momentums", ()):
            momentum.assign(tf.zeros_like(momentum.value))

    def get_config(self) -> dict[str, Any]:
        names = ("rate_decay", "rate_decay_steps")
        decay = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {**super().get_config(), **decay}
