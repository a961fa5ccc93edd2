"""The base of every method: a Keras model whose `train_step` is one step of continual learning."""

import functools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.attributes import check_attribute
from nccl_tf.arguments.choices import STORES
from nccl_tf.arguments.constructor_arguments import restored
from nccl_tf.batch import Batch, as_task_ids, class_numbers, split_inputs, take_rows
from nccl_tf.class_weights import numbered
from nccl_tf.errors import UserError, checked_name
from nccl_tf.gradients import loss_scale
from nccl_tf.keras_private import (
    averages_of,
    call_steps_of_validation,
    count_own_variables,
    epoch_of_backup,
    forget_epoch_of_backup,
    function_of_steps,
    graph,
    is_validation,
    loss_mean,
    without_compile_warning,
    without_tracing_warning,
)
from nccl_tf.learner import (
    adapters,
    checks,
    growth,
    hints,
    measures,
    serving,
    task_pass,
)
from nccl_tf.learner.columns import LOGITS, with_place_weights
from nccl_tf.learner.core import Core
from nccl_tf.learner.data import FitData, HostFacts, agreed_names
from nccl_tf.learner.execution import StepFunctions, StepsByIndex, most_steps
from nccl_tf.learner.fit import Fit, listed, progress_bar
from nccl_tf.learner.heads import MASKED_LOGIT
from nccl_tf.learner.losses import ExampleLoss, weighted_mean
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.options.step_log import StepLog
from nccl_tf.learner.preprocessor import prepared_data, prepares
from nccl_tf.learner.turns import alone, one_at_a_time
from nccl_tf.learner.variable_flags import VariableFlags
from nccl_tf.memories.forms import refusing_other_shapes
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.networks.inspection import (
    check_can_be_loaded,
    check_runs_under_xla,
    computes_in_float16,
    ends_in_probabilities,
    find_head,
    has_convolutions,
    makes_mask,
    text_inputs,
)
from nccl_tf.streams.batches import Reading
from nccl_tf.user_data import ARRAYS, check_counts, check_unmasked, no_examples
from nccl_tf.whole_files import replaced

WEIGHTS = ("averaged", "plain")
_FLAGS = "marks"  # as files call it
_ADAPTERS = "adapters"
_CLASSES = "classes"
_FIXED = ("memory_batch_size",)
"""Numbers beside those of `hyperparameters` that steps are traced with and files keep."""


class Learner(Core):
    """Learns task after task with mean softmax cross-entropy and one optimizer update per step.

    `train_step` is the whole step, and Keras runs it. A method overrides one or two of its parts,
    from the smallest: `stream_losses` or `training_loss`; `learn`, which takes the gradients;
    `update`, which also applies them, for methods that walk; `after_step`; `on_task_begin` and
    `on_task_end`. `Core` has them; here is what a user calls.

    Inputs are arrays [n, ...] or `{"inputs": inputs, "task": task ids}`, labels are class numbers,
    and a weight of 0 marks an example as padding.
    """

    train_function: Any
    test_function: Any
    predict_function: Any
    _owns_private_names = True

    def __setattr__(self, name: str, value: Any) -> None:
        """As in Keras, unless the attribute would take the place of one of the base.

        One with the name of a hyperparameter is checked by its row, and stays as the constructor
        has left it: graphs, state and files of the learner are made with it.

        Raises:
            UserError: It would, or the value is not one of the row's, or another than it has.
        """
        check_attribute(self, name, value)
        row = self._checked_rows.get(name)
        if row is not None:
            value = row.taken(value)
        before, base = (vars(self).get(each) for each in (name, "_base"))
        is_made = base is not None and base.is_made  # Keras sets some before there is one.
        if is_made and (row is not None or name in _FIXED) and value != before:
            raise UserError(
                f"received {name} = {value!r} for a {type(self).__name__} that was made with "
                f"{before!r}: make it anew with {name}={value!r}, around a network of its own"
            )
        super().__setattr__(name, value)

    # ---- Keras's verbs -------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As in Keras; see `call`.

        Raises:
            UserError: Another learner has let the network grow.
        """
        self._check_not_behind()
        return super().__call__(*args, **kwargs)

    @one_at_a_time
    @alone
    def compile(
        self,
        optimizer: Any = "sgd",
        loss: Any = None,
        metrics: Any = None,
        weighted_metrics: Any = None,
        run_eagerly: bool = False,
        steps_per_execution: int | None = None,
        jit_compile: bool | str | None = None,
        auto_scale_loss: bool = True,
        *,
        loss_weights: Any = None,
        classes: str | None = None,
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
            weighted_metrics: More of them: weights count in all metrics.
            run_eagerly: As in Keras.
            steps_per_execution: Steps in one call of the graph, as in Keras. With None, `fit`
                chooses: at most 50 with convolutions and 200 without, a divisor of
                `steps_per_epoch` and of the number of batches after which a callback acts; 1 on
                several replicas and where a callback of your own overrides `on_train_batch_*`.
            jit_compile: True compiles whole steps with XLA, memory and logs included, as many in
                one program as a call has; False does not. None and "auto" compile on a GPU, and on
                a processor where a dense network takes steps enough to pay for the time of
                compiling; steps that XLA refuses run without it, as a log line says.
            auto_scale_loss: As in Keras, where a layer of the network computes in float16.
            loss_weights: None; a loss that splits the outputs has the weights of its parts.
            classes: Of a loss of your own whose targets are classes, their form: "numbers" [n] or
                "one_hot" rows [n, classes]. Masks, heads and methods that need classes take it
                then: by a masked output, -1e9 of logits and 0 of probabilities, its class has to
                count as impossible. An attribute `from_logits` of the loss tells which they are;
                without it, outputs are probabilities where a Sequential or Functional network ends
                in softmax or sigmoid, and logits elsewhere.

        Raises:
            UserError: An argument has another form than those named here, `rate_decay` is set and
                the learning rate is a schedule, the network ends in softmax or sigmoid and the loss
                takes logits, or in a linear layer and it takes probabilities, the loss was left out
                and the outputs are not [n, classes], the method, its heads or its memory have no
                meaning for the loss, or `jit_compile` meets inputs of strings.
        """
        switches = {"run_eagerly": run_eagerly, "auto_scale_loss": auto_scale_loss}
        self.devices.check_scope(type(self).__name__)
        self._check_not_behind()
        checks.check_compile(steps_per_execution, jit_compile, loss_weights, **switches)
        jit_compile = None if jit_compile in (None, "auto") else bool(jit_compile)
        metrics = [*checks.as_list(metrics), *checks.as_list(weighted_metrics)] or None
        example_loss = self._checked_loss(loss, classes)
        optimizer = checks.as_optimizer(optimizer)
        scales = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if auto_scale_loss and not scales and computes_in_float16(self.network):
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        for option in self.options:
            option.on_compile(optimizer, example_loss)
        self.example_loss = example_loss
        made = [self.example_loss.metric(metric, self.num_classes) for metric in metrics or []]
        # Keras counts padded examples in `metrics`; in `weighted_metrics` their weight 0 tells.
        super().compile(
            optimizer=optimizer,
            weighted_metrics=made,
            run_eagerly=run_eagerly,
            steps_per_execution=steps_per_execution or 1,
            jit_compile=False,
            auto_scale_loss=auto_scale_loss,
        )
        self.execution.discard_graphs()
        self.example_loss.check_network(self.network)
        if jit_compile:
            check_runs_under_xla(self.network)
            if reason := self.why_not("jit_compile"):
                raise UserError(
                    f"received jit_compile=True, but {type(self).__name__} {reason}, which XLA "
                    "cannot compile: leave jit_compile out"
                )
        self.devices.begin(self.optimizer, bool(jit_compile))
        if self.devices.loop is not None:
            self.devices.loop.begin(self)
        # Built here, because a first step that creates variables is traced twice.
        self.optimizer.build(self.trainable_variables)
        self._base.trained = checks.trained(self.trainable_variables)
        able = self.devices.count == 1 and not run_eagerly
        self.execution.begin(
            1 if run_eagerly else steps_per_execution,
            # Keras's loop takes no more than one on replicas.
            most_steps(self.network) if able else 1,
            jit_compile if able else False,
            may_compile=not self.why_not("jit_compile") and not text_inputs(self.network),
            convolves=has_convolutions(self.network),
        )
        checks.check_rate_is_finite(self.optimizer)
        self._warn_of_optimizer()
        self._base.metrics = made
        self._base.compile_arguments = {
            "loss": loss, "metrics": metrics, "run_eagerly": run_eagerly,
            "steps_per_execution": steps_per_execution, "jit_compile": jit_compile,
            "auto_scale_loss": auto_scale_loss, "classes": classes,
        }  # fmt: skip
        self.make_graphs()
        if self.example_loss.is_softmax:
            self.warn_once("one class", hints.one_class_warning(self.heads, self.num_classes))
        self._warn_of_shared_network()
        hints.hold(self, self.network)

    def _check_trainable(self) -> None:
        """Check that the same variables are trained as when the learner was made and compiled."""
        checks.check_trainable(
            self.trainable_variables, self._base.trained, self._base.made_with, type(self).__name__,
            self.why_not("refreezing"),
        )  # fmt: skip

    def _look_at(self, first: Any, targets: Any) -> None:
        """Say what is likely not meant by adapters, and by the data of a first `fit`.

        Args:
            first: A first batch; None where none can be had, and a later `fit` is asked.
            targets: All of them, where the host has them.
        """
        self.warn_once("adapters", hints.adapters_warning(adapters.dead(self.network)))
        if first is None:
            return
        self._base.has_looked = True
        inputs = split_inputs(first[0])[0]
        self.warn_once("scale", hints.scale_warning(self.network, inputs))
        self.warn_once("columns", hints.column_warning(self.network, inputs))
        if LOGITS in self._kept_columns() and not self.example_loss.has_classes:
            self.warn_once("far_targets", hints.far_targets_warning(targets))

    def _warn_of_rare_class(self, labels: Any) -> None:
        """Say where a reservoir hardly holds a class of a task that begins."""
        if not self.example_loss.has_classes:
            return
        for memory in self.memories():
            if isinstance(memory, ReservoirMemory):
                hint = hints.rare_class_warning(labels, memory.capacity)
                self.warn_once("rare_class", hint)

    def _warn_of_optimizer(self) -> None:
        """Warn once that an optimizer transforms steps that the method derives for SGD."""
        reason = self.why_not("optimizer_state")
        if reason and not checks.is_plain_sgd(self.optimizer):
            inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
            self.warn_once(
                "optimizer",
                f"{type(inner).__name__} changes the step: {type(self).__name__} {reason}, which "
                "holds for keras.optimizers.SGD without momentum and weight decay",
            )

    def _check_training(self) -> None:
        """Check that labels were right, not too many steps in a row skipped, and the rate is.

        Raises:
            UserError: A label was no class of its task, or as for `check_rate`.
            LearningFailedError: As for `Progress.check_not_failed`.
        """
        if not self.execution.known.labels_checked:  # Else no step has noted any.
            self._refuse_wrong_labels(self._base.wrong_label)
        self.progress.check_not_failed(self.network, self.optimizer)
        self.check_rate()

    def _refuse_wrong_labels(self, noted: checks.WrongLabel) -> None:
        """Raise the error of a wrong label, weight or task id that a graph has noted.

        Raises:
            UserError: There was one.
        """
        heads = None if self.heads is None else self.heads.table
        noted.refuse(self._classes, heads, self._class_table(), self._base.vocabularies)

    def make_graphs(self) -> None:
        """As `Core.make_graphs`."""
        super().make_graphs()
        self._base.metrics_fit = False
        self._base.count = graph(self._count_predictions, reduce_retracing=True)
        self._base.remember = graph(self._remember, reduce_retracing=True)

    def _checked_loss(self, loss: Any, classes: str | None = None) -> ExampleLoss:
        """The loss that `compile` received, where the method has a meaning for it.

        Raises:
            UserError: It has none.
        """
        rank, probabilities = len(self.network.output_shape), ends_in_probabilities(self.network)
        checked = ExampleLoss(loss, rank, classes, probabilities, self.num_classes)
        checked.check(
            type(self).__name__, self.why_not("loss"), self.why_not("targets"),
            self.heads is not None,
        )  # fmt: skip
        if not checked.has_classes and any(memory.by_class for memory in self.memories()):
            raise UserError(
                f"received {checked.described} with a {type(self.memory).__name__}, which keeps "
                f"examples by their class: {checked.instead('a ReservoirMemory')}"
            )
        return checked

    @one_at_a_time
    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        *,
        task_id: int | None = None,
        end_task: bool = True,
        resumes: bool = False,
        logs: str = "metrics",
        **kwargs: Any,
    ) -> Any:
        """Learn one task: `keras.Model.fit` between `begin_task` and `end_task`.

        Args:
            x: As for `keras.Model.fit`, like all arguments that are not named here; or a task of a
                stream, whose examples come in another order in every epoch.
            y: Labels.
            batch_size: Examples in a batch of arrays (by default 32) or of a task (10).
            epochs: Passes over the data. A memory stores examples in the first one (`stores` of the
                learner): without `steps_per_epoch` that is the first epoch.
            verbose, callbacks, validation_split, initial_epoch: As in Keras.
            steps_per_epoch: As in Keras, where the data go on over the epochs, and begin again when
                they end. A memory stores all that comes of data of unknown length.
            validation_data: As in Keras; or a task of a stream, for its test examples. By default
                the validation examples of the task, where it has some.
            shuffle: Whether arrays are shuffled; a dataset comes in its own order.
            class_weight: Factors of the examples' weights by class, its number, or its name where
                the data tell names; 1 for classes that are not named. They weigh the examples of
                the stream and those that are replayed, whenever these came, alike: until the task
                ends, or another `fit` of it says otherwise. Validation is not weighed.
            sample_weight: Weights [n], 0 or more, an array or a column of a data frame; 0 marks an
                example as padding. A step takes the
                mean by weights, where Keras divides by the number of examples: only ratios count. A
                memory does not keep them: an example is replayed with weight 1, or that of its
                class. With a target at each place also [n, places], as KerasHub's preprocessors
                make them: an example's loss is the mean over its places by these, examples weigh
                1 each, and a memory keeps the weights of places.
            task_id: The task's number; by default the open task, else the one after the last.
            end_task: False leaves the task open, for another `fit` of the same task.
            resumes: Whether an earlier `fit` has passed over these examples, and this one goes on,
                as with `initial_epoch`: a memory has stored them, and stores nothing of this one.
            logs: Values of the progress bar: "metrics" for the loss and the compiled metrics, or
                "all" for what the method measures at its steps too, which is in the history.
            **kwargs: Further arguments of `keras.Model.fit`.

        Returns:
            The `keras.callbacks.History` of this fit. Its `loss` is the mean over the steps,
            without the network's regularizers, which are in the gradients alone. Every name has one
            of validation, "val_" and the name, where there is validation: NaN for what steps alone
            measure.

        Raises:
            UserError: The data hold no examples, a label is no whole number or no class of its
                task, a weight is below 0, a value is masked, `class_weight` names what is no class
                or has no meaning for the loss or the method, the method is not defined at the
                learning rate, a callback loads the state of another task, or as for `begin_task`.
                A wrong label or weight in a dataset or a generator skips its batch, and is raised
                at the latest when the epoch ends.
            LearningFailedError: Ten steps in a row had no finite loss and gradient, or every step
                of a fit that begins a task; the task stays open, with the state after the last
                finite step. Or a weight is not finite after the fit.
        """
        # The door: what came, in the form in which Keras takes it.
        self._check_may_be("trained")
        self.devices.check_scope(type(self).__name__)
        self._check_trainable()
        bar = progress_bar(verbose, logs)
        fit = Fit.received(
            x, y, sample_weight, self.network, batch_size=batch_size, seed=self.seed, epochs=epochs,
            initial_epoch=initial_epoch, steps_per_epoch=steps_per_epoch, resumes=resumes,
            validation_split=validation_split, validation_data=validation_data,
            validation_batch_size=kwargs.pop("validation_batch_size", None),
            validation_steps=kwargs.pop("validation_steps", None),
        )  # fmt: skip
        data, loop = fit.data, self.devices.loop
        task_id = data.task_id if task_id is None else task_id
        if task_id is None:
            task_id = self.progress.next_task
            if task_id and not self.progress.task_is_open.numpy() and not data.names_tasks:
                self.warn_once("tasks", hints.task_warning(task_id))
            self.progress.warn_of_open_task()

        # What is wrong with it, before anything changes.
        self._know_classes(data, fit.validation)
        checks.check_task_id(task_id)
        task_pass.check_can_be_passed(data, self.options)
        host_facts = self._known_of(data, task_id)
        if fit.validation is not None:
            self._check_labels(fit.validation, task_id)
        self._try_metrics(data)
        factors = self.class_factors(class_weight, self._base.class_names)

        # The task opens, and memories that wait for shapes get them.
        begins = not bool(self.progress.task_is_open.numpy())
        self.begin_task(task_id)
        waits, looks = self._memory_waits, not self._base.has_looked
        first = data.first(needed=waits) if waits or looks else None
        if first is not None and waits:
            self.build_memory(self.as_batch(first))  # It refuses what is no rows of one length.
        if looks:
            self._look_at(first, data.y)
        self._weigh_classes(factors)
        if begins:
            self._warn_of_rare_class(data.y)
            self._pass_task(task_pass.BEGIN, data)

        # How steps run, and how many in a call.
        stores_once = self.stores == STORES[0]
        fit.watch(self.progress, self._check_training, self.store_from_now if stores_once else None)
        callbacks = [*listed(callbacks), fit, *bar]
        fit.choose(self.execution, callbacks)

        # Keras runs it.
        self._begin_averages()
        self.progress.left_open = "an earlier fit, which did not end,"
        forget_epoch_of_backup(self)
        self.execution.known = host_facts
        try:
            shuffle = bool(shuffle and data.shuffles)
            run = super().fit if loop is None else functools.partial(loop.fit, self)
            history = run(
                **fit.arguments(loop is None, shuffle), verbose=verbose, callbacks=callbacks,
                shuffle=shuffle, **kwargs,
            )  # fmt: skip
        finally:
            self.execution.known = HostFacts()
            self.progress.reset_skips_in_a_row()
            self.store_from_now(True)

        # It has ended, and so does the task.
        checks.check_weights(self.network)
        # A loss scale begins with steps that overflow.
        must_learn = begins and loss_scale(self.optimizer) is None
        self.warn_once("skipped", fit.skipped_warning(must_learn))
        self.progress.left_open = ""
        if history.epoch and not history.history:
            raise no_examples(data.x)
        # A backup may be of the end of the last epoch.
        if end_task and (history.epoch or epoch_of_backup(self)):
            self._pass_task(task_pass.END, data)
            self.end_task()
        return history

    def _begin_averages(self) -> None:
        """Let the averages of an optimizer with `use_ema` begin at the weights.

        Keras lets them begin at 0, sets them in the first step, and puts them into the network when
        a fit ends: one that takes no step, or skips all of them, would leave zeros there.
        """
        if self.compiled and not int(self.optimizer.iterations.numpy()):
            for weight, average in averages_of(self.optimizer):
                average.assign(weight.value)

    def _know_classes(self, *data: FitData | None) -> None:
        """Keep the names of classes that data tell, and say which one metrics of two judge.

        Raises:
            UserError: As for `agreed_names`.
        """
        told = [part for part in data if part is not None and part.class_names]
        if not told:
            return
        self._base.class_names = agreed_names(self._base.class_names, *told)
        positive = (part.positive for part in told)
        self._base.positive = next(filter(None, positive), self._base.positive)
        metrics = self._base.metrics if self.compiled else ()
        judged = [m.name for m in metrics if measures.judges_class_one(m, self.num_classes)]
        hint = hints.positive_warning(self._base.class_names, self._base.positive, judged)
        self.warn_once("positive", hint)

    def _pass_task(self, when: str, data: FitData) -> None:
        """Pass the data of `fit` once more, where an option asks for it."""
        if task_pass.asking(self.options, when):
            batches = task_pass.batches_of(data)
            task_pass.pass_task(self.options, when, batches, self.as_batch)

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of classes in the order of their numbers, of the data that have come."""
        return self._base.class_names

    def class_factors(
        self, class_weight: Any, names: Sequence[str] | None = None
    ) -> dict[int, float]:
        """The factors of classes by number, those that are not 1.

        Args:
            class_weight: As for `fit`.
            names: Of the classes in the order of their numbers; None where they have none.

        Raises:
            UserError: They name what is no class, or have no meaning for the method or the loss.
        """
        if class_weight is None:
            return {}
        self._check_option("class_weight", class_weight)
        return numbered(class_weight, self.example_loss.weighed_classes(self.num_classes), names)

    def _try_metrics(self, data: FitData) -> None:
        """Try the compiled metrics out once, where the form of targets is known before a batch.

        Raises:
            UserError: One does not fit the targets and outputs.
        """
        # On replicas nothing may be added to a metric outside of a step.
        if not self.compiled or self._base.metrics_fit or self.devices.count > 1:
            return
        loss = self.example_loss
        if loss.takes_class_numbers:
            targets = tf.TensorSpec([None], tf.int64)
        else:
            labels = data.label_spec
            if labels is None:
                return
            sides = [1 if side is None else side for side in labels.shape]
            targets = tf.TensorSpec(labels.shape, loss.targets(tf.zeros(sides, labels.dtype)).dtype)
        outputs = (*self.network.output_shape[1:-1], self.num_classes)
        for metric in self._base.metrics:
            measures.check_metric(metric, targets, outputs, loss)
        self._base.metrics_fit = True

    @one_at_a_time
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
            x, y, sample_weight, return_dict: As for `keras.Model.train_on_batch`.
            class_weight: As for `fit`.
            task_id: As for `fit`: by default the open task, else the one after the last, which
                then begins.

        Returns:
            As in Keras: loss and metrics of this batch. The dictionary of `return_dict` has what
            the method measures too.

        Raises:
            UserError: As for `fit`, and on replicas.
            LearningFailedError: As for `fit`.
        """
        self._check_may_be("trained")
        self.devices.check_scope(type(self).__name__)
        self.devices.check_learns_a_batch("train_on_batch")
        self._check_trainable()
        if task_id is None:
            task_id = self.progress.next_task
            self.progress.warn_of_open_task()
        checks.check_task_id(task_id)
        data = prepared_data(self.network, FitData(x, y, sample_weight))
        host_facts = self._known_of(data, task_id)
        self._try_metrics(data)
        factors = self.class_factors(class_weight, self._base.class_names)
        if not self._base.has_looked:
            self._look_at(data.first(needed=False), data.y)
        self.begin_task(task_id)
        self._weigh_classes(factors)
        if self.compiled:  # Keras says so where it is not.
            self.check_rate()
        if self._memory_waits:
            self.build_memory(self.as_batch(data.columns))
        before, self.execution.known = self.execution.known, host_facts
        try:
            logs = super().train_on_batch(data.x, data.y, data.weights, return_dict=return_dict)
        finally:
            self.execution.known = before
        self._check_training()
        return logs

    @one_at_a_time
    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        *,
        task_id: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The loss and the compiled metrics over examples of one task, or of the tasks in the data.

        To metrics a class that a mask hides is no hit, and an example with NaN in its inputs or
        outputs is wrong, as a log line says once; its loss is NaN.

        Args:
            x: A task of a stream, for its test examples, or as for `keras.Model.evaluate`;
                `{"inputs": inputs, "task": task ids}` names the task of each example (int [n]).
            y: Class numbers [n] of arrays.
            batch_size: Examples in a batch of arrays.
            verbose, steps, callbacks: As in Keras.
            sample_weight: As in `fit`: losses are means by weights; 0 marks an example as padding.
            return_dict: Whether to return a dictionary by name in place of a list.
            task_id: The task of all examples. A multi-head learner needs it where the data name no
                tasks; a single head takes the latest task by default.
            **kwargs: As in Keras.

        Returns:
            As in Keras; on replicas, over the examples of all of them.

        Raises:
            UserError: The data hold no examples, nothing names the task to a multi-head learner, it
                has no head for it, the data name tasks too, or a label is no class of its head.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        learner = nccl_tf.Finetune(network, heads=stream.heads)
        learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
        for task in stream:
            learner.fit(task.train_batches(batch_size=10), verbose=0)
        loss, accuracy = learner.evaluate(*stream[0].test, task_id=0, verbose=0)
        ```
        """
        self.devices.check_scope(type(self).__name__)
        loop, validates = self.devices.loop, is_validation(kwargs)
        if validates:  # by `fit`, which has looked at the data, and which Keras iterates over
            given = {"x": x}
        else:
            data = FitData.of_test(x, y, sample_weight, batch_size=batch_size)
            if steps is None:
                data.check_ends()
            data = prepared_data(self.network, data)
            self._know_classes(data)
            data = self._with_tasks(data, task_id)
            self._check_labels(data, None)
            self._try_metrics(data)
            given = data.for_keras(loop is None, steps=steps)
        # Keras runs past a number of steps that those of a call do not divide.
        in_call = math.gcd(self.execution.steps, steps or 0) if validates else 1
        if validates and loop is None:
            call_steps_of_validation(self, in_call)
        with self._evaluating(), self.execution.calls_of(in_call):
            run = super().evaluate if loop is None else functools.partial(loop.evaluate, self)
            logs = run(
                **given, verbose=verbose, steps=steps, callbacks=callbacks,
                return_dict=return_dict, **kwargs,
            )  # fmt: skip
        if isinstance(logs, (list, dict)) and not logs:
            raise no_examples(x)
        self._refuse_wrong_labels(self._base.wrong_at_test)
        loss = logs["loss"] if isinstance(logs, dict) else np.ravel(logs)[0]
        if math.isnan(loss) and not float(loss_mean(self).count.numpy()):
            self.warn_once("weightless", hints.WEIGHTLESS)
        self.warn_once("nan", self.nan_count.warning())
        if validates:
            # What steps alone measure has a place too: loggers derive the names of validation from
            # those of training where a first fit has none, and their files keep one set of columns.
            logs |= dict.fromkeys(self.log_names[1:], float("nan"))
        return logs

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
        *,
        task_id: int | None = None,
    ) -> Any:
        """Logits [n, classes] as `evaluate` and `accuracy` judge them, -1e9 where masked.

        Args:
            x: A task of a stream, for its test examples, as for `keras.Model.predict`, or
                `{"inputs": inputs, "task": task ids}`.
            batch_size, verbose, steps, callbacks: As in Keras.
            task_id: As for `evaluate`.

        Raises:
            UserError: As for `evaluate`.
        """
        self.devices.check_scope(type(self).__name__)
        data = FitData.of_arrays(x)
        if steps is None:
            data.check_ends()
        data = self._with_tasks(prepared_data(self.network, data), task_id)
        data.batch_size = batch_size
        given = data.for_keras(self.devices.loop is None, steps=steps)
        # Keras unrolls the steps of a call, and would trace anew for the last one.
        with self._evaluating(), self.execution.calls_of(1):
            logits = super().predict(
                given["x"], batch_size, verbose, steps=steps, callbacks=callbacks
            )
        self._refuse_wrong_labels(self._base.wrong_at_test)
        return logits

    @one_at_a_time
    def test_on_batch(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        return_dict: bool = False,
        *,
        task_id: int | None = None,
    ) -> Any:
        """As in Keras, with the weights of `evaluate`; x or `task_id` names tasks as there."""
        data = prepared_data(self.network, FitData(x, y, sample_weight))
        data = self._named_batch(data, task_id)
        self._check_labels(data, None)
        with self._evaluating():
            logs = super().test_on_batch(data.x, data.y, data.weights, return_dict)
        self._refuse_wrong_labels(self._base.wrong_at_test)
        return logs

    def predict_on_batch(self, x: Any, *, task_id: int | None = None) -> Any:
        """As in Keras, with the weights of `predict`; x or `task_id` names tasks as there."""
        data = self._named_batch(prepared_data(self.network, FitData(x)), task_id)
        with self._evaluating():
            logits = super().predict_on_batch(data.x)
        self._refuse_wrong_labels(self._base.wrong_at_test)
        # Keras gives every replica the whole batch.
        return logits[: len(tf.nest.flatten(split_inputs(data.x)[0])[0])]

    @property
    def metrics_names(self) -> list[str]:
        """As in Keras, without what the method measures."""
        return [name for name in super().metrics_names if name != self._quantity_means.name]

    def _flatten_metrics_in_order(self, logs: dict[str, Any]) -> Any:
        own = self.log_names[1:]
        of_metrics = {name: value for name, value in logs.items() if name not in own}
        return super()._flatten_metrics_in_order(of_metrics)

    def _named_batch(self, data: FitData, task_id: int | None) -> FitData:
        # A batch without its task is refused in the graph, where a task is not open.
        return data if task_id is None else self._with_tasks(data, task_id)

    def _with_tasks(self, data: FitData, task_id: int | None) -> FitData:
        """Data that name the task of every example, where a call or a task of a stream names it.

        Args:
            data: As `evaluate` and the like received them.
            task_id: The task of all examples; None where the call names none.

        Raises:
            UserError: The call and the data name tasks, nothing does and the learner has heads, or
                there is no head for a task.
        """
        if data.task_id is not None and task_id is not None:
            raise UserError(
                f"received task {data.task_id} of a stream and task_id={task_id}: leave task_id out"
            )
        task_id = data.task_id if task_id is None else task_id
        if self.heads is not None:
            for task in np.unique(np.asarray(data.tasks(0))) if data.form == ARRAYS else ():
                if not 0 <= task < len(self.heads.table):
                    checks.raise_no_head(task, len(self.heads.table))
        if task_id is None:
            if self.heads is not None and not data.may_name_tasks:
                checks.raise_no_task()
            return data
        self.check_head(task_id)
        if data.names_tasks:
            raise UserError(
                "received task_id and data with tasks of their own: leave one of them out"
            )
        return data.with_task(task_id)

    def test_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Evaluate a batch: mean loss over its real examples, and the compiled metrics."""
        self.execution.note_graph()
        heads, loss = None if self.heads is None else self.heads.table, self.example_loss
        batch = self.as_batch(data, self._task_at_test())
        sizes = self._base.vocabularies
        batch, wrong = self._base.wrong_at_test.find(data, batch, loss, self._classes, heads, sizes)
        batch = batch._replace(weights=tf.where(wrong, 0.0, batch.weights))
        inputs = {"inputs": batch.inputs, "task": batch.tasks}
        logits = measures.outputs_at_test(self, inputs)
        self.nan_count.see(logits, batch.weights)
        mean = weighted_mean(loss.of(logits, batch), batch.weights)
        loss_mean(self).update_state(mean, sample_weight=tf.reduce_sum(batch.weights))
        targets, weights = loss.measured(batch, logits)
        outputs = loss.metric_outputs(logits, targets)
        return self._at_test(self.compute_metrics(None, targets, outputs, weights))

    def predict_step(self, data: Any) -> tf.Tensor:
        """Logits of a batch of data. Graph code."""
        self.execution.note_graph()
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        inputs, tasks = split_inputs(x)
        if tasks is None:
            tasks = tf.fill([tf.shape(tf.nest.flatten(inputs)[0])[0]], self._task_at_test())
        tasks = as_task_ids(tasks)
        if self.heads is not None:
            tasks = self._base.wrong_at_test.find_tasks(tasks, len(self.heads.table))
        inputs = self._base.wrong_at_test.find_ids(inputs, self._base.vocabularies)
        return self({"inputs": inputs, "task": tasks}, training=False)

    def _task_at_test(self) -> tf.Tensor:
        """int64 scalar: the task of examples that come without one, in evaluation. Graph code.

        With heads it is `UNNAMED`, unless a task is open, as when `fit` validates.
        """
        if self.heads is None:
            return self.progress.task.value
        return tf.where(self.progress.task_is_open.value, self.progress.task.value, checks.UNNAMED)

    def make_test_function(self, force: bool = False) -> Any:
        """As in Keras, with the current number of steps in a call."""
        if force or self.test_function is None:
            self._base.test_functions, self._base.test_steps = {}, None
        steps = self.execution.steps
        if steps not in self._base.test_functions:
            super().make_test_function(force=True)
            function = without_tracing_warning(self.test_function)
            self._base.test_functions[steps] = self._by_index(function, steps)
        self.test_function = self._base.test_functions[steps]

    def make_predict_function(self, force: bool = False) -> Any:
        super().make_predict_function(force)
        without_tracing_warning(self.predict_function)

    def _by_index(self, function: Callable[[Any], Any], steps: int) -> Callable[[Any], Any]:
        """A function of evaluation that takes examples in memory by index, and others as it did."""
        functions = StepFunctions(
            self.test_step, lambda: self._at_test(self.get_metrics_result()), function,
            self._adds_logs(type(self).test_step, Learner.test_step),
        )  # fmt: skip
        by_index = self._base.test_steps = self._base.test_steps or StepsByIndex(
            functions, self.execution.note_graph
        )

        def test(iterator: Any) -> Any:
            if self.run_eagerly or not isinstance(iterator, Reading):
                return function(iterator)
            return iterator.run(steps, lambda rows, _: by_index.take(iterator.batches, rows))

        return test

    def _at_test(self, results: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The results of metrics without what steps alone measure."""
        return {name: value for name, value in results.items() if name not in self.log_names[1:]}

    def _adds_logs(self, step: Any, plain: Any) -> bool:
        """Whether a step of a user's class may add logs to the results of the metrics."""
        return step is not plain or type(self).compute_metrics is not keras.Model.compute_metrics

    def make_train_function(self, force: bool = False) -> Any:
        """Keras's own function of the step, or one of whole chunks of steps under XLA."""
        adds_logs = self._adds_logs(type(self).train_step, Learner.train_step)
        loop = self.devices.loop
        function = function_of_steps if loop is None else loop.function_of_steps
        functions = StepFunctions(
            self.train_step, self.get_metrics_result, functools.partial(function, self), adds_logs,
            self.run_eagerly,
        )  # fmt: skip

        def train(iterator: Any) -> Any:
            with self.execution.turns.take(), refusing_other_shapes():
                return self.execution.run(functions, iterator)

        self.train_function = train
        return train

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Nothing: `compile` builds all; Keras's fails where replicas' slices differ in size."""

    # ---- accuracy ------------------------------------------------------------------------------

    def accuracy(self, x: Any, y: Any = None, task_id: int | None = None) -> float:
        """Share of examples that are classified correctly, as a fraction.

        An example with NaN in its inputs or outputs is not, as a log line says once. Those of a
        class that the loss ignores do not count; where no others are, it is NaN.

        Args:
            x: A task of a stream, for its test examples; or inputs [n, ...], as in training, or
                `{"inputs": inputs, "task": task ids}`.
            y: Labels of inputs: int [n], or one-hot rows [n, classes] as the loss takes them.
            task_id: The task of all examples, for the mask of a multi-head learner; a single head
                takes the latest task by default.

        Raises:
            UserError: There are no examples, or not as many labels as inputs, nothing names the
                task to a multi-head learner, it has no head for it, a label is no class of it, or
                the compiled loss has no classes.

        Example:

        ```python
        stream = nccl_tf.load_stream("split_digits", max_tasks=2)
        network = nccl_tf.networks.mlp(
            stream.example_shape, stream.num_classes, pixels=stream.pixels
        )
        learner = nccl_tf.Finetune(network, heads=stream.heads)
        learner.compile(keras.optimizers.SGD(0.1))
        learner.fit(stream[0], verbose=0)
        learner.accuracy(stream[0])
        learner.accuracy(*stream[0].test, task_id=0)  # the same
        ```
        """
        right, predicted, counts = self.confusion(x, y, task_id).numpy().T
        self.warn_once("nan", self.nan_count.warning())
        return float(counts[right == predicted].sum() / counts.sum()) if len(counts) else math.nan

    def confusion(self, x: Any, y: Any = None, task_id: int | None = None) -> tf.Tensor:
        """As `accuracy`, but counts of examples: int64 [cells, 3], on the device.

        A row is a right class, a predicted one, the number of classes for NaN, and how many
        examples there are of the two, 1 or more.

        Args:
            x, y, task_id: As for `accuracy`.

        Raises:
            UserError: As for `accuracy`.
        """
        data = FitData.of_arrays(x, y)
        if data.y is None:
            raise UserError(
                "received inputs without labels: expected inputs and labels, or a task of a stream"
            )
        if not self.example_loss.has_classes:
            metric = '"binary_accuracy"' if self.example_loss.is_binary else "one of the targets"
            raise UserError(
                f"received {self.example_loss.name}, which has not one class for each example, for "
                f"an accuracy: take evaluate, and learn, with another metric, {metric}"
            )
        data = self._with_tasks(prepared_data(self.network, data), task_id)
        inputs, tasks = split_inputs(data.x)
        tasks = max(int(self.progress.task.numpy()), 0) if tasks is None else np.asarray(tasks)
        for task in np.unique(tasks):
            self.check_head(int(task))
        self._check_labels(data, tasks)
        check_counts(inputs, data.y)
        labels = class_numbers(self.example_loss.targets(tf.convert_to_tensor(data.y)))
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        tasks = tf.broadcast_to(tf.cast(tasks, tf.int64), tf.shape(labels))
        if (counted := self.example_loss.is_counted(labels)) is not None:
            inputs, labels, tasks = tf.nest.map_structure(
                lambda column: tf.boolean_mask(column, counted), (inputs, labels, tasks)
            )
        if self._base.count is None:
            self.make_graphs()
        with self._evaluating():
            return self._base.count(inputs, labels, tasks)

    def _count_predictions(self, inputs: Any, labels: tf.Tensor, tasks: tf.Tensor) -> tf.Tensor:
        # Two batches of dense layers keep two cores busy; convolutions fill them, and the memory.
        at_once = 1 if has_convolutions(self.network, frozen=True) else 2
        cells = measures.confusion(
            self, self.example_loss.predicted, inputs, labels, tasks, self._classes, at_once
        )
        _, predicted, counts = tf.unstack(cells, axis=1)
        self.nan_count.add(tf.reduce_sum(tf.where(predicted == self._classes, counts, 0)))
        return cells

    def _check_labels(self, data: FitData, task: Any, table: np.ndarray | None = None) -> None:
        """Check the labels, weights and tasks of examples that the host has.

        Args:
            data: As a verb received them.
            task: The task of examples that name none; None where it is not known.
            table: bool [tasks, classes], the classes of each task; None for those of the heads.

        Raises:
            UserError: Labels are no whole numbers, one is no class of its task, a task id is out
                of range, a weight is below 0, or a value is masked.
        """
        labels, tasks, loss = data.y, data.tasks(task), self.example_loss
        self._check_not_behind()
        check_unmasked(labels, "labels")
        if data.weights is not None:
            checks.check_sample_weights(data.weights)
        checks.check_ids_range(tasks)
        if any(self._base.vocabularies):
            checks.check_ids(data.all_inputs, self._base.vocabularies)
        if labels is None:
            return
        # What a mask leaves out may have any target, and steps know the mask.
        if loss.checks_places and not makes_mask(self.network):
            checks.check_numbers(labels, data.weights, loss, self.num_classes)
        if not loss.checks_labels:
            return
        if table is None and self.heads is not None:
            table = self.heads.table
        if loss.takes_class_numbers:
            checks.check_is_one_number(labels)
        elif loss.is_one_unit:
            labels = checks.shares_to_numbers(labels, data.weights)
        else:
            labels = checks.rows_to_numbers(labels, self.num_classes)
        counted = loss.is_counted(np.asarray(labels).reshape(-1))
        weights = data.weights
        if counted is not None:
            weights = counted if weights is None else np.where(counted, weights, 0)
        checks.check_labels(labels, tasks, weights, self._classes, table)

    def _known_of(self, data: FitData, task_id: int) -> HostFacts:
        """Facts of training examples that no step needs to find, once the host has checked them.

        Args:
            data: As `fit` received them.
            task_id: The task of examples that name none.

        Returns:
            Nothing on replicas, which share out what they find, and where a mask leaves out places.

        Raises:
            UserError: As for `_check_labels`.
        """
        self._check_labels(data, task_id, self._class_table())
        finds = self.example_loss.checks_places and makes_mask(self.network)
        return HostFacts() if finds or self.devices.count > 1 else data.known()

    # ---- averaged weights ----------------------------------------------------------------------

    @contextmanager
    def use_weights(self, which: str) -> Iterator[None]:
        """Let the network hold its averaged or its plain weights, and evaluation take them.

        Without it `evaluate`, `predict` and `accuracy` take the average where there is one, and a
        call of the learner or its network takes the plain weights, those that are trained. At the
        end of the body, and if it raises, the network has its weights back, bit-identical. Within
        the body of "averaged" the learner can neither be trained nor saved; its network can be
        saved.

        Args:
            which: "averaged" or "plain".

        Raises:
            UserError: `which` is unknown, or the learner keeps no average.

        Example:

        ```python
        images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
        labels = np.arange(40) % 2
        network = nccl_tf.networks.mlp((8, 8, 1), 2)
        learner = nccl_tf.Finetune(network, average_weights=0.9)
        learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
        learner.fit(images, labels, verbose=0)
        learner.evaluate(images, labels, verbose=0)  # averaged
        with learner.use_weights("plain"):
            learner.evaluate(images, labels, verbose=0)
        with learner.use_weights("averaged"):
            logits = network(images)
        ```
        """
        checked_name("which", which, WEIGHTS)
        self._check_not_behind()
        average = self.option(AverageWeights)
        if average is None and which == "averaged":
            raise UserError(
                'received "averaged", but the learner keeps no average of its weights: build it '
                "with average_weights=0.99"
            )
        with nullcontext() if average is None else average.use(which):
            yield

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """The learner as its options want it to be evaluated."""
        self._check_not_behind()
        with ExitStack() as stack:
            for option in self.options:
                stack.enter_context(option.evaluating())
            # After the options: one that changes weights waits until no other thread takes them.
            stack.enter_context(self.execution.turns.take())
            yield

    def _check_may_be(self, done: str) -> None:
        """Check that the learner may be "trained", "saved" or "grown" now.

        Raises:
            UserError: Another learner has let its network grow, or an option forbids it.
        """
        self._check_not_behind()
        for option in self.options:
            option.check(done)

    # ---- the memory ----------------------------------------------------------------------------

    @one_at_a_time
    def remember(
        self,
        x: Any,
        y: Any = None,
        task_id: int | None = None,
        *,
        sample_weight: Any = None,
        batch_size: int = 100,
    ) -> None:
        """Store examples in the memory without training on them, such as those of earlier training.

        They are offered in order, as a task that has ended: a memory of all of them at once
        is what `fit` on them would have left, and a single head predicts their classes. A log line
        says once where the memory does not keep all of them. Columns of logits, for dark replay,
        get those of the network as it is. A `fit` learns the task after theirs by default.

        Args:
            x: Inputs [n, ...], or `{"inputs": inputs, "task": task ids}`; or a task of a stream,
                for its training examples.
            y: Labels of inputs, as for `fit`.
            task_id: The task of all examples; by default that of the stream's task, else 0.
            sample_weight: As for `fit`: weights of places are kept; an example of weight 0 is not.
            batch_size: Examples that are passed through the network at once.

        Raises:
            UserError: The learner is not compiled, keeps no memory, or runs on replicas, a task is
                open, or as for `fit`.

        Example:

        ```python
        images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 1), np.uint8)
        labels = np.arange(80) % 2
        network = nccl_tf.networks.mlp((8, 8, 1), 4)  # trained on the classes 0 and 1 before
        learner = nccl_tf.DERpp(network, nccl_tf.ReservoirMemory(50))
        learner.compile(keras.optimizers.SGD(0.1))
        learner.remember(images, labels)
        learner.fit(images, labels + 2, verbose=0)  # the classes 2 and 3, as task 1
        ```
        """
        name = type(self).__name__
        if not self.compiled:
            raise UserError(
                f"received examples for a {name} that is not compiled: compile it first"
            )
        if self.memory is None:
            raise UserError(
                f"received examples to remember for a {name} without a memory: leave remember out, "
                "or take a method with a memory, such as nccl_tf.ExperienceReplay"
            )
        self.devices.check_scope(type(self).__name__)
        self.devices.check_learns_a_batch("remember")
        data = FitData.of_arrays(x, y, sample_weight, part="train")
        data = prepared_data(self.network, data)
        if data.y is None:
            raise UserError("received inputs without labels: expected remember(inputs, labels)")
        task_id = data.task_id if task_id is None else task_id
        inputs, named = split_inputs(data.x)
        y, weights = data.y, data.weights
        check_counts(inputs, y)
        weights = np.ones(len(y), np.float32) if weights is None else weights
        # Text is a tensor here.
        inputs, y, weights = tf.nest.map_structure(np.asarray, (inputs, y, weights))
        tasks = np.broadcast_to(named if named is not None else task_id or 0, len(y))
        named_data = FitData({"inputs": inputs, "task": tasks}, y, weights)
        self._check_labels(named_data, None, self._class_table())
        latest, before = int(self.progress.task.numpy()), self._count_readable()
        for task in np.unique(tasks).tolist():
            self.begin_task(task)
            (rows,) = np.nonzero(tasks == task)
            for start in range(0, len(rows), batch_size):
                part = rows[start : start + batch_size]
                some = take_rows((inputs, y, weights), part)
                batch = self.as_batch(tf.nest.map_structure(tf.convert_to_tensor, some))
                self.build_memory(batch)
                batch = with_place_weights(batch, self.memory, self.example_loss)
                # Traced for any number of examples, before the first number comes.
                self._base.remember.get_concrete_function(
                    tf.nest.map_structure(
                        lambda rows: tf.TensorSpec([None, *rows.shape[1:]], rows.dtype), batch
                    )
                )
                with refusing_other_shapes():
                    self._base.remember(batch)
            self.end_task()
        self.progress.task.assign(max(latest, int(self.progress.task.numpy())))
        after = self._count_readable()
        if after - before < len(y):
            self.warn_once(
                "remembered",
                f"of {len(y)} examples to remember {after - before} are in slots that were free, "
                f"and the memory holds {after}: the others were left out, or replaced some; build "
                "it with more slots to keep all of them",
            )

    @property
    def _memory_waits(self) -> bool:
        """Whether a memory waits for first examples, which tell its shapes."""
        return any(not memory.is_allocated for memory in self.memories())

    def _count_readable(self) -> int:
        return int(self.memory.readable_count()) if self.memory.is_allocated else 0

    def _remember(self, batch: Batch) -> None:
        self.store(batch, self.forward(batch, training=False))
        if self.example_loss.has_classes:
            self.progress.see(batch)

    def record_steps(self, every: int) -> StepLog:
        """Keep rows of every log over windows of steps.

        Args:
            every: Steps in a window.

        Returns:
            The log, an option of the learner.
        """
        before, rows = self.option(StepLog), 64 + self.execution.most_per_call // max(every, 1)
        goes_on = before is not None and before.every == every
        if before is not None and goes_on and before.rows >= rows:
            return before
        with self.distribute_strategy.scope():
            names, ended = (self.log_names, self.cumulative), self.progress.tasks_ended
            log = StepLog(*names, every, rows, ended)
        if before is not None and goes_on:
            log.restore(before.state())
        self.add_option(log)
        return log

    def summary(self, *args: Any, print_fn: Any = None, **kwargs: Any) -> None:
        """As in Keras, with a line on the memory, whose examples are no parameters."""
        super().summary(*args, print_fn=print_fn, **kwargs)
        for memory in self.memories():
            (print_fn or print)(f" Memory: {memory.describe()}")

    # ---- classes that come later ---------------------------------------------------------------

    @one_at_a_time
    @alone
    def add_classes(self, count: int) -> None:
        """Let the head grow by `count` logits, for classes that were not known of at the start.

        The new classes have the next numbers. Weights, memory, optimizer (slots of new weights are
        zero), metrics and the classes seen stay; new weights are drawn by the last layer's
        initialisers. The next step is traced once. With `heads`, and in a memory that does not list
        them in `task_classes`, the new classes are those of one more task. Where classes arrive one
        at a time, a network with outputs to spare is traced once for all, without this call.

        Args:
            count: Number of classes, 1 or more.

        Raises:
            UserError: The network, the method, an option or replicas leave no way to grow.
                Whatever is raised, such as by a lack of room, the learner is as before.

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
        base, before = self._base, self._heads_as_argument()
        self._check_may_be("grown")
        growth.HeadGrowth(self, base.head, base.growing, base.trained).add_classes(count)
        if self.heads is not None:
            self._base.arguments.follow(before, self._heads_as_argument())
        self._base.arguments.follow({"network": self.network}, {})

    # ---- state, configuration, files -----------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor as they were given, for saving.

        Network and heads are the current ones, which may have grown. Names that data told
        are beside them.

        Raises:
            UserError: Keras cannot write one of them.
        """
        config = self._base.arguments.config()
        if of_adapters := adapters.config_of(self.network):
            config = {**config, _ADAPTERS: of_adapters}
        if self._base.class_names:
            config = {**config, _CLASSES: [list(self._base.class_names), self._base.positive]}
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A learner from `get_config`; its parts that are Keras objects are rebuilt first."""
        config = dict(config)
        of_adapters = config.pop(_ADAPTERS, None)
        names, positive = config.pop(_CLASSES, ((), None))
        with without_compile_warning():
            if of_adapters and isinstance(config.get("network"), dict):
                # Before the learner, which may keep something for each weight that is trained.
                config["network"] = keras.saving.deserialize_keras_object(config["network"])
                adapters.enable(config["network"], of_adapters)
            learner = restored(cls, config)
        learner._base.class_names, learner._base.positive = tuple(names), positive
        return learner

    def get_compile_config(self) -> dict[str, Any] | None:
        """The arguments that `compile` received, and the flags of variables, for saving.

        None before it. Keras's files keep no flags: exclusions from weight decay, variables that
        their gradients overwrite, and variables and layers within others that are frozen.
        """
        if not self.compiled:
            return None
        arguments = {"optimizer": self.optimizer, **self._base.compile_arguments}
        return keras.saving.serialize_keras_object(
            {**arguments, _FLAGS: VariableFlags(self).places(self.optimizer)}
        )

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as the saved model was, with the flags of its variables."""
        arguments = keras.saving.deserialize_keras_object(config)
        saved = arguments.pop(_FLAGS, None)  # None in a file of an earlier version
        if saved is not None:
            VariableFlags(self).set(saved, arguments["optimizer"])
        self.compile(**arguments)

    @alone
    def save(
        self,
        filepath: Any,
        overwrite: bool = True,
        zipped: bool | None = None,
        *,
        include_memory: bool = True,
        **kwargs: Any,
    ) -> None:
        """Save the model with its memory and its optimizer, for `nccl_tf.load_model`.

        Args:
            filepath: Of a .keras file.
            overwrite, zipped, **kwargs: As for `keras.Model.save`.
            include_memory: Whether the file has the memory's examples; set `saves_memory`
                for the files of callbacks.

        Raises:
            UserError: The file has another ending, or loading would not give the same model.
            OSError: The file cannot be written; an earlier one is as it was then.
        """
        path = os.fspath(filepath)
        if path.endswith((".h5", ".hdf5")):
            raise UserError(
                f"received save({path!r}), a format that has no place for the memory and the "
                "random draws: expected a .keras file"
            )
        self._check_not_behind()
        check_can_be_loaded(self.network, saves=True)
        self.check_saves()
        before = self.saves_memory
        self.saves_memory = before and include_memory
        try:
            is_local_archive = path.endswith(".keras") and zipped is not False and "://" not in path
            if is_local_archive and (overwrite or not os.path.exists(path)):
                # Keras writes in place: on a full disk an earlier file would be lost.
                with replaced(Path(path).resolve(), ".keras") as temporary:
                    super().save(temporary, zipped=zipped, **kwargs)
            else:
                super().save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)
        finally:
            self.saves_memory = before

    @alone
    def __reduce__(self) -> tuple[Any, ...]:
        """The learner in Keras's format, for `pickle`, joblib and spawned processes."""
        from nccl_tf.saving import unpickled  # which knows all methods, by their table

        return unpickled, super().__reduce__()

    def check_saves(self) -> None:
        """Check that a saved learner can be loaded as the same one, as far as can be told.

        Raises:
            UserError: As for `save`.
        """
        self._check_may_be("saved")
        checks.check_no_lambda(self.get_compile_config() or {})
        checks.check_grows_in_a_file(self.network, self.num_classes, self._base.built_classes)
        self.get_config()

    @alone
    def serving_model(self) -> keras.Model:
        """A plain Keras model whose outputs are those of `predict`, to be exported and served.

        It is a copy of the network, with the averaged weights where `predict` takes them, and a
        mask of constants: the classes seen so far, or those of each example's task. A language
        model that generates stays one. What the learner learns later does not change it. Without
        `nccl_tf`, Keras loads it from a .keras file unless the network has layers of this package;
        an export needs neither.

        Returns:
            A model from the network's inputs to logits [n, classes], -1e9 where masked (0 of
            probabilities). With heads from a dictionary: the network's inputs by their names, or
            "inputs" where there is one, and "task" (int32 [n]).

        Raises:
            UserError: No plain model answers as the method does.

        Example:

        ```python
        images = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8)
        learner = nccl_tf.Finetune(nccl_tf.networks.mlp((8, 8, 1), 10))
        learner.compile(keras.optimizers.SGD(0.1))
        learner.fit(images, np.arange(40) % 2, verbose=0)
        learner.serving_model().export("served")  # a SavedModel, for tf.saved_model.load
        ```
        """
        if reason := self.why_not("serving_model"):
            raise UserError(f"{type(self).__name__} makes no serving model: {reason}")
        with self.serving_weights():
            network = serving.copy_network(self.network)
        if prepares(network):
            return self._serving_task(network)
        if hasattr(network, "generate") and self._serves_the_network():
            return network
        inputs, received, task = serving.inputs_of(network, self.heads is not None)
        outputs = self.serving_outputs(network, inputs, task)
        return keras.Model(received, outputs, name=f"{network.name}_serving")

    def _serving_task(self, network: Any) -> keras.Model:
        """A task of KerasHub with its preprocessor, whose head hides the classes not seen so far.

        Args:
            network: A copy of the learner's.

        Raises:
            UserError: There are heads, or outputs that are not the network's, or classes are to be
                hidden and the last layer has no bias.
        """
        advice = "set network.preprocessor = None, and prepare the data yourself"
        if not self._serves_outputs():
            raise UserError(
                f"received a {type(self).__name__} around a network with a preprocessor, whose "
                f"outputs are not those of one head: {advice}"
            )
        seen = self.progress.seen_among(self.num_classes).numpy()
        if self.example_loss.masked_value is None or seen.all() or not seen.any():
            return network
        head = find_head(network, self.num_classes, self._base.head)
        if not head.use_bias:
            raise UserError(
                f"received a network with a preprocessor whose last layer {head.name!r} has no "
                f"bias, which would hide the classes not seen so far: give it one, or {advice}"
            )
        head.bias.assign(np.where(seen, head.bias.numpy(), MASKED_LOGIT))
        return network

    def _serves_outputs(self) -> bool:
        """Whether a single head answers with the network's own outputs, but for a mask."""
        return self.heads is None and type(self).serving_outputs is Learner.serving_outputs

    def _serves_the_network(self) -> bool:
        """Whether no mask is between the network's outputs and what is served."""
        return self._serves_outputs() and self.example_loss.masked_value is None

    def serving_weights(self) -> Any:
        """A context in which the network holds the weights that `predict` takes.

        For methods to override that predict with others.
        """
        return self._evaluating()

    def serving_outputs(self, network: keras.Model, inputs: Any, task: Any) -> Any:
        """Symbolic outputs [n, classes] of `serving_model`.

        For methods to override whose logits are not the network's outputs.

        Args:
            network: A copy of the network, with the weights that `predict` takes.
            inputs: Its inputs, symbolic.
            task: int32 [n], symbolic; None for a single head.
        """
        return self._masked_for_serving(network(inputs, training=False), task)

    def _masked_for_serving(self, logits: Any, task: Any) -> Any:
        """Symbolic logits [n, classes] with the current mask, as `call` at test.

        Args:
            logits: Before any mask.
            task: int32 [n], symbolic; None for a single head.
        """
        table = None if self.heads is None or task is None else self.heads.table
        value = self.example_loss.masked_value
        seen = self.progress.seen_among(self.num_classes).numpy()
        return serving.masked(logits, task, table, seen, value)

    @alone
    def save_adapters(self, path: Any) -> None:
        """Write the adapters (LoRA) alone, with what else is trained, such as biases and a head.

        They are those that `predict` takes. The base, memory and optimizer are not in the file.

        Args:
            path: Of an .npz file.

        Raises:
            UserError: The network has no adapters, or the file has another ending.
            OSError: The file cannot be written; an earlier one is as it was then.

        Example:

        ```python
        dense = keras.layers.Dense(4)
        network = keras.Sequential([keras.Input((8,)), dense])
        dense.enable_lora(2)
        learner = nccl_tf.Finetune(network)
        learner.save_adapters("adapters.npz")
        learner.load_adapters("adapters.npz")
        ```
        """
        with self.serving_weights():
            adapters.save_adapters(self.network, path)

    @one_at_a_time
    @alone
    def load_adapters(self, path: Any) -> None:
        """Read the file of `save_adapters` into a network with the same base and adapters.

        Averaged weights, where there are some, become the same. Memory and optimizer stay.

        Args:
            path: Of the file.

        Raises:
            UserError: It cannot be read, is of adapters of other layers, another rank or another
                dtype, or has NaN or infinity. The network is as it was then.
        """
        self._check_may_be("loaded")
        if not adapters.load_adapters(self.network, path):
            self.warn_once(
                "base",
                f"the frozen weights of the network are not those that the adapters of {path} were "
                "trained beside, so that they predict otherwise: load the same base first",
            )
        if average := self.option(AverageWeights):
            average.copy.take()

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Refused: export the serving model, which has no memory.

        Raises:
            UserError: Always.
        """
        raise UserError(
            f"received export({os.fspath(filepath)!r}) for a learner, which has a memory: export "
            "the plain model that predicts the same, model.serving_model().export(path)"
        )

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        """Refused: what TensorFlow tracks has no place for the memory, the tasks and their classes.

        Raises:
            UserError: Always.
        """
        if save_type == "savedmodel":
            raise UserError(
                "received a learner for tf.saved_model.save, which has no place for its memory: "
                "export the plain model that predicts the same, model.serving_model().export(path)"
            )
        raise UserError(
            "received a learner for tf.train.Checkpoint, which would restore its weights without "
            "memory and tasks: take learner.save(path), learn(backup_dir=...) or "
            "keras.callbacks.BackupAndRestore; tf.train.Checkpoint(network=learner.network) has "
            "the weights alone"
        )

    def save_own_variables(self, store: Any) -> None:
        """As in Keras, with the memory and the random state of the network's layers."""
        self._check_may_be("saved")
        super().save_own_variables(store)
        for name, state in self._random_states().items():
            store[name] = state
        for i, memory in enumerate(self.memories() if self.saves_memory else ()):
            memory.save_variables(store, f"memory_{i}_")

    def load_own_variables(self, store: Any) -> None:
        """Load the variables of `save_own_variables`.

        Raises:
            UserError: The saved learner had more or other state, such as that of an option.
        """
        # What Keras passes has keys, and is no dictionary.
        saved = {name: store[name] for name in store.keys()}  # noqa: SIM118
        for name, state in self._random_states().items():
            state.assign(saved.pop(name))
        for i, memory in enumerate(self.memories()):
            if any(name.startswith(f"memory_{i}_") for name in saved):
                memory.load_variables(saved, f"memory_{i}_")
            elif memory.is_allocated:
                self.warn_once(
                    "memory", "the file was saved without its memory, which is empty now"
                )
        own = count_own_variables(self)
        if len(saved) != own:
            raise UserError(
                f"received {len(saved)} variables, expected {own}: add an option in the "
                "constructor of a subclass, or to a new learner and call load_weights"
            )
        super().load_own_variables(saved)
        self.execution.known = HostFacts()
        self.progress.left_open = "the file that was loaded"

    @alone
    def save_weights(self, filepath: Any, overwrite: bool = True, **kwargs: Any) -> None:
        """As in Keras, between two calls of a training that runs in another thread."""
        super().save_weights(filepath, overwrite=overwrite, **kwargs)

    @one_at_a_time
    @alone
    def load_weights(self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """As in Keras; the file has the memory's examples too.

        Raises:
            UserError: A memory has no shapes yet, so that its examples would be left out.
        """
        for memory in self.memories():
            if not memory.is_allocated:
                raise UserError(
                    f"received load_weights for a {type(memory).__name__} without shapes, which "
                    "has no place for the examples in the file: build it with example_shape and "
                    "example_dtype, or save the whole model and take nccl_tf.load_model"
                )
        super().load_weights(filepath, skip_mismatch=skip_mismatch, **kwargs)

    def _random_states(self) -> dict[str, keras.Variable]:
        """Those of dropout, random augmentation and noise: variables that are no weights."""
        weights = {id(weight) for weight in self.network.weights}
        others = [v for v in self.network.variables if id(v) not in weights]
        return {f"random_{i}": variable for i, variable in enumerate(others)}
