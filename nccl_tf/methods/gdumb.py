"""GDumb: a network trained from scratch on a balanced memory (Prabhu et al., ECCV 2020)."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.gradients import loss_scale
from nccl_tf.keras_private import graph
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.memories.balanced import BalancedMemory
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import gdumb as rows
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.rng import uniform_below
from nccl_tf.variables import assign_all

CLIP_NORM = 10.0
"""The norm that a gradient is cut to."""

_GRID = 2**24
"""Whole numbers that stand for [0, 1): exact in float32."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class GDumb(Learner):
    """Only fills its memory while it meets the stream; trains a fresh network at every task's end.

    The fresh network has the weights that the first task began with, and a fresh optimizer, so it
    depends on the memory, the seed and the task alone. It is trained on the memory for a number of
    passes with the cosine rates of `warm_restarts`, gradients cut to a norm of 10 and, for images
    with convolutions, CutMix. The paper compiles SGD(0.05, momentum=0.9, weight_decay=1e-6).

    Of the released code for MNIST (github.com/drimpossible/GDumb) three things are left out: random
    crops of images padded by 4 pixels, because no method here augments; batch norm in the MLP,
    because the network is the one that all methods of a table share (give a network with
    `BatchNormalization` to have it); and the best epoch by the test set, because that is chosen by
    what is reported.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A `BalancedMemory`, as the authors have it; any other that a step writes is learned
            from in the same way.
        memory_batch_size: Examples in a training step.
        passes: Passes over the memory; None for 128, or 256 where the network has convolutions.
        cutmix: Probability that a training batch is mixed; None for 0, or 0.5 where the network has
            convolutions.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.BalancedMemory(50, [[0, 1], [2, 3]], (28, 28, 1))
        >>> learner = nccl_tf.GDumb(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    memory_class = Memory
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "trains a fresh network in Python when a task ends",
        "loss": "balances classes and mixes their images with its cross-entropy",
        **rows.GDUMB.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        memory: BalancedMemory,
        *,
        memory_batch_size: int = 16,
        passes: int | None = None,
        cutmix: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        if memory_batch_size < 1:
            raise UserError(
                f"received a memory batch of {memory_batch_size}; expected at least 1 example"
            )
        self.memory_batch_size = int(memory_batch_size)
        self.passes, self.cutmix = passes, cutmix
        convolves = has_convolutions(network)
        self._passes = self.passes or (256 if convolves else 128)
        shapes = [tuple(each.shape[1:]) for each in network.inputs]
        has_images = [len(shape) for shape in shapes] == [3]
        if self.cutmix and not has_images:
            raise UserError(
                f"received cutmix={self.cutmix:g} for inputs of the shapes {shapes}, expected one "
                "image (height, width, channels), whose parts it mixes: leave cutmix out"
            )
        by_default = 0.5 if convolves and has_images else 0.0
        self._cutmix = by_default if self.cutmix is None else self.cutmix
        self.initial = WeightCopy(self.network, self.state, "initial")
        self._fresh_optimizer: list[np.ndarray] = []

    def compile(self, optimizer: Any = "sgd", *args: Any, **kwargs: Any) -> None:
        """As `Learner.compile`; every fresh training starts with the optimizer's current state.

        Raises:
            UserError: As there, or the learning rate is a schedule.
        """
        super().compile(optimizer, *args, **kwargs)
        if not isinstance(self.optimizer.learning_rate, keras.Variable):
            raise UserError(
                "received an optimizer with a learning rate schedule, but GDumb has one of its "
                "own, with warm restarts: give the highest rate as a number"
            )
        self._fresh_optimizer = [v.numpy() for v in self.optimizer.variables]

    def make_graphs(self) -> None:
        super().make_graphs()
        # An older graph would keep using the older variables.
        self._train_pass = graph(self._one_pass)
        shapes = [value.shape for value in self._fresh_optimizer]
        if self._fresh_optimizer and shapes != [v.shape for v in self.optimizer.variables]:
            fresh = type(self.optimizer).from_config(self.optimizer.get_config())
            fresh.build(self.trainable_variables)
            self._fresh_optimizer = [v.numpy() for v in fresh.variables]

    def update(self, batch: Batch) -> Step:
        """Learn nothing; the loss is that of the network of the last task's end."""
        logits = self.forward(batch, training=False)
        _, logs = self.training_loss(logits, batch)
        return Step([], logits, logs)

    def on_task_begin(self, task_id: int) -> None:
        # The network may have other weights than when it was built.
        self.initial.take(tf.equal(self.progress.tasks_ended.value, 0))

    def on_task_end(self, task_id: int) -> None:
        """Train a fresh network on the memory.

        Raises:
            LearningFailedError: Ten steps in a row had no finite loss and gradient.
        """
        if not self.memory.is_allocated:  # Nothing of the task has come.
            return
        rate, skipped = float(self.optimizer.learning_rate), int(self.progress.skipped.numpy())
        self.initial.put()
        assign_all(self.optimizer.variables, self._fresh_optimizer)
        # Apart from the memory's seeds, whose first number is the seed itself.
        key = self.seed + (task_id + 1) * 2**32
        for number, alpha in enumerate(warm_restarts(rate, self._passes)):
            self.optimizer.learning_rate = alpha
            self._train_pass(tf.constant(key, tf.int64), tf.constant(number, tf.int64))
            self.progress.check_not_failed(self.network, self.optimizer)
        self.optimizer.learning_rate = rate
        self.progress.reset_skips_in_a_row()
        skipped = int(self.progress.skipped.numpy()) - skipped
        if skipped and loss_scale(self.optimizer) is None:
            self.warn_once(
                "skipped",
                f"{skipped} step{'s' * (skipped != 1)} on the memory had no finite loss and "
                "gradient and changed nothing: look for NaN and infinity in the inputs, or take a "
                "lower rate; model.skipped counts them",
            )

    def learn(self, batch: Batch) -> Step:
        """The gradients of a training step on a memory batch, cut to a norm."""
        return _clipped(super().learn(batch))

    def learn_mixed(self, batch: Batch, other: Batch, share: tf.Tensor) -> Step:
        """The gradients of a training step on the batches that `cutmix` has mixed."""

        def loss_of() -> tuple[tf.Tensor, Any]:
            outputs = self.outputs(batch.inputs, batch.tasks, training=True)
            regularization = self.regularization()
            logits = Logits(outputs, self.masked(outputs, batch))
            first, _ = self.training_loss(logits, batch)
            second, _ = self.training_loss(Logits(outputs, self.masked(outputs, other)), other)
            of_first = tf.cast(share, first.dtype)
            loss = of_first * first + (1 - of_first) * second
            return loss + regularization, (logits, {"loss": loss})

        gradients, (logits, logs) = self.gradient(loss_of)
        return _clipped(Step(gradients, logits, logs))

    def _one_pass(self, key: tf.Tensor, number: tf.Tensor) -> None:
        size, stored = self.memory_batch_size, self.memory.readable_count()
        first_seed = number * 2**32
        order = shuffle_order(tf.stack([key, first_seed]), stored, self.memory.capacity)

        def train(i: tf.Tensor) -> tuple[tf.Tensor]:
            index = tf.range(size, dtype=tf.int64)
            here = tf.minimum(stored - i * size, size)
            # A last, partial batch repeats its own examples with weight 0.
            slots = self.memory.readable_slots(tf.gather(order, i * size + index % here))
            real = tf.cast(index < here, tf.float32)
            batch = self.memory.rows(slots, real)
            if self._cutmix:
                seed = tf.stack([key, first_seed + i + 1])
                batch, other, share = cutmix(batch._replace(weights=real), self._cutmix, seed)
                both = map(self.class_weighing.weighed, (batch, other))  # each by its own labels
                step = self.learn_and_apply(self.learn_mixed, *both, share)
            else:
                step = self.learn_and_apply(self.learn, batch)
            self.progress.count_step(step.is_learned, alone=True)
            return (i + 1,)

        tf.while_loop(lambda i: i * size < stored, train, (tf.constant(0, tf.int64),))


def _clipped(step: Step) -> Step:
    return step._replace(gradients=tf.clip_by_global_norm(step.gradients, CLIP_NORM)[0])


def warm_restarts(rate: float, passes: int) -> list[float]:
    """The step size of each pass: a tenth, the whole, then cosines that restart.

    The cosines go from `rate` to a hundredth of it; they last 2, 4, 8, ... passes (the released
    code's warm restarts with $T_0 = 1$, T_mult = 2, of which the first period is the second pass).

    Args:
        rate: The highest step size.
        passes: Number of passes.
    """
    rates = [0.1 * rate, rate]
    period = 2
    while len(rates) < passes:
        cosines = [(1 + math.cos(math.pi * i / period)) / 2 for i in range(period)]
        rates += [rate * (0.01 + 0.99 * cosine) for cosine in cosines]
        period *= 2
    return rates[:passes]


def shuffle_order(seed: tf.Tensor, count: tf.Tensor, capacity: int) -> tf.Tensor:
    """The numbers 0 to count - 1 in random order, and those to capacity - 1 after them.

    Args:
        seed: int64 [2], never the same twice.
        count: int64 scalar, at most `capacity`.
        capacity: Length of the result.

    Returns:
        int64 [capacity].
    """
    last = 2**31 - 1
    keys = uniform_below(seed, tf.fill([capacity], tf.constant(last, tf.int64)))
    numbers = tf.range(capacity, dtype=tf.int64)
    return tf.cast(tf.argsort(tf.where(numbers < count, keys, last), stable=True), tf.int64)


def cutmix(batch: Batch, probability: float, seed: tf.Tensor) -> tuple[Batch, Batch, tf.Tensor]:
    """Mix a batch with a random permutation of itself, the same box for all of its images.

    The box covers 1 - lambda of the image before it is cut at the border, with lambda uniform in
    [0, 1) (Beta(1, 1)) and its centre uniform.

    Args:
        batch: Examples.
        probability: How often a batch is mixed at all.
        seed: int64 [2], never the same twice.

    Returns:
        The batch with mixed images; the same with the labels and tasks of the other images; and
        the share of the pixels that is the examples' own, float32 scalar.
    """
    count = tf.shape(batch.labels)[0]
    height, width = batch.inputs.shape[1:3]
    sides = tf.constant([_GRID, _GRID, height, width], tf.int64)
    bounds = tf.concat([sides, tf.fill([count], tf.constant(2**31 - 1, tf.int64))], axis=0)
    draws = uniform_below(seed, bounds)
    mixes = draws[0] < round(probability * _GRID)
    side = tf.sqrt(1 - tf.cast(draws[1], tf.float32) / _GRID)
    rows = _interval(draws[2], side, height) & mixes
    columns = _interval(draws[3], side, width)
    box = rows[:, None] & columns[None, :]
    other = tf.argsort(draws[4:], stable=True)
    images = tf.where(box[:, :, None], tf.gather(batch.inputs, other), batch.inputs)
    labels, tasks = tf.gather(batch.labels, other), tf.gather(batch.tasks, other)
    share = 1 - tf.reduce_mean(tf.cast(box, tf.float32))
    return (
        batch._replace(inputs=images),
        batch._replace(inputs=images, labels=labels, tasks=tasks),
        share,
    )


def _interval(centre: tf.Tensor, share: tf.Tensor, length: int) -> tf.Tensor:
    """bool [length]: an interval of `share` of the length around a centre, cut at the ends."""
    half = tf.cast(share * length, tf.int64) // 2
    index = tf.range(length, dtype=tf.int64)
    return (index >= centre - half) & (index < centre + half)
