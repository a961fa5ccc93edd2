"""LPR (Yoo, Liu, Wood and Pleiss, ICML 2024, "Layerwise proximal replay: a proximal point method
for online continual learning")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Step
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.lpr.layers import preconditioned_layers
from nccl_tf.methods.lpr.preconditioner import Preconditioner, Sums
from nccl_tf.methods.rows import lpr as rows
from nccl_tf.rng import apart

AT_A_TIME = 100
"""Examples in one forward pass for P, whose convolutions make patches of all of them."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class LPR(ReplayLearner):
    r"""Experience replay whose step moves each layer's outputs on memory examples less.

    $x^+ = x - \alpha P^{-1} g$ layer by layer, with $g$ the gradient of the mean loss on the stream
    batch and the memory batch together, and $P = I + \omega/(c N) Z^T Z$ of what the layer receives
    on $N$ memory examples (`lpr.preconditioner`). So the movement $D$ of a layer's weights
    minimises $\langle g, D \rangle + (\|D\|^2 + \omega/(c N) \|Z D\|^2)/(2 \alpha)$.

    P is taken of dense layers, of convolutions of images and, as in the authors' code, of the
    batch normalisation of images, all as in evaluation; the weights of other layers take plain
    steps. It is taken again every `lpr_every` steps, before the gradient, from the whole memory, as
    the authors have it, or from N examples that are drawn for it, and is I until there are any.
    With another optimizer than SGD that receives P^-1 g. The authors take three steps on each
    stream batch, which `lpr_every` counts as one, and balance their memory over the classes.

    Args:
        network: A functional or Sequential model from inputs to one logit per class, made of layers
            that are each used once.
        memory: A reservoir.
        lpr_omega: $\omega$; 0 gives experience replay.
        lpr_beta: Power of the number of places in c, of a convolution and of batch normalisation;
            see `lpr.preconditioner`.
        lpr_every: Steps from one P to the next. Each takes a forward pass of `lpr_examples`
            examples, 100 at a time, and, of a layer with n inputs, an inverse of n rows, or of
            `lpr_examples` in a dense layer that has more inputs.
        lpr_examples: N, fewer where the memory holds fewer; None for all that it holds. On a
            processor a network of convolutions needs a small one. Of a memory that grows with the
            classes it is what that holds at first.
        batch_norm: As for `ReplayLearner`, by default jointly.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: A number is out of range, the network is made otherwise, or neither N nor the
            memory's size is known.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ReservoirMemory(200, (28, 28, 1))
        >>> learner = nccl_tf.LPR(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    log_names: ClassVar[tuple[str, ...]] = ("loss", "memory_loss")
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "solves linear systems, for which LiteRT has no operation",
        "optimizer_state": "takes a proximal step by its preconditioner",
        "skipped_step": "counts every batch, to take its preconditioner from the memory in time",
    }

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        lpr_omega: float = 1.0,
        lpr_beta: float = 1.0,
        lpr_every: int = 10,
        lpr_examples: int | None = None,
        batch_norm: str = "joint",
        **kwargs: Any,
    ):
        super().__init__(network, memory, batch_norm=batch_norm, **kwargs)
        self.lpr_omega = lpr_omega
        self.lpr_beta = lpr_beta
        self.lpr_every = lpr_every
        self.lpr_examples = lpr_examples
        layers = preconditioned_layers(network)
        self._together, self._calls = self._reads()
        examples = self._together * self._calls
        self.preconditioners = [
            Preconditioner(layer, self._maker(i), examples, self.lpr_omega, self.lpr_beta)
            for i, (layer, _) in enumerate(layers)
        ]
        received = keras.Model(network.inputs, [inputs for _, inputs in layers])
        # Held by a function, for Keras would take a model for a second network to be saved.
        self._received = lambda inputs: received(inputs, training=False)
        self.steps = self.state("steps", (), "int64")

    def _maker(self, number: int) -> Any:
        return lambda name, shape, dtype: self.state(f"{name}_{number}", shape, dtype)

    def update(self, batch: Batch) -> Step:
        if self.lpr_omega:
            # Of memory and weights alone, so that a step that is skipped leaves nothing in it.
            step = self.steps.value.assign_add(1) - 1
            due = (step % self.lpr_every == 0) & (self.memory.readable_count() > 0)
            tf.cond(due, lambda: self._refresh(step), lambda: None)
        return super().update(batch)

    def _reads(self) -> tuple[int, int]:
        """How many examples a P is taken from at a time, and how many times at most."""
        count = self.lpr_examples or self.memory.capacity
        if count is None:
            raise UserError(
                "received a memory whose size is known with its classes, and no lpr_examples: "
                "expected one of them, for the preconditioner's size; set lpr_examples"
            )
        together = min(AT_A_TIME, count)
        return together, -(-count // together)

    def _refresh(self, step: tf.Tensor) -> None:
        slots, weights = self._examples(step)
        calls = tf.cast(tf.math.ceil(tf.reduce_sum(weights) / self._together), tf.int64)

        def call(number: tf.Tensor, sums: list[Sums]) -> tuple[tf.Tensor, list[Sums]]:
            first = number * self._together
            some = slice(first, first + self._together)
            # P is of outputs, whatever the losses of classes weigh.
            inputs_of_all = self.memory.rows(slots[some], weights[some]).inputs
            received = tf.nest.flatten(self._received(inputs_of_all))
            return number + 1, [
                preconditioner.read(before, inputs, weights[some], first)
                for preconditioner, before, inputs in zip(
                    self.preconditioners, sums, received, strict=True
                )
            ]

        start = tf.constant(0, tf.int64), [each.nothing() for each in self.preconditioners]
        _, sums = tf.while_loop(lambda number, _: number < calls, call, start)
        for preconditioner, of_all in zip(self.preconditioners, sums, strict=True):
            preconditioner.refresh(of_all)

    def _examples(self, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Slots and weights of the examples for P, padded with weight 0 to whole calls."""
        count = self._together * self._calls
        asked = self.lpr_examples or count
        if self.memory.capacity <= asked:  # all of them, without a draw, whose cost is count^2
            numbers, readable = tf.range(count, dtype=tf.int64), self.memory.readable_count()
            slots = self.memory.readable_slots(tf.minimum(numbers, readable - 1))
            return slots, tf.cast(numbers < readable, tf.float32)
        slots, weights = self.memory.draw(asked, apart(self.seed, step))
        fill = [[0, count - asked]]
        return tf.pad(slots, fill), tf.pad(weights, fill)

    def replay(self, batch: Batch, *replays: Batch) -> Step:
        """The gradients of experience replay, preconditioned layer by layer."""
        step = super().replay(batch, *replays)
        if not self.lpr_omega:
            return step
        gradients = list(step.gradients)
        places = {id(weight): i for i, weight in enumerate(self.trainable_variables)}
        for preconditioner in self.preconditioners:
            mine = [places[id(w)] for w in preconditioner.weights if id(w) in places]
            if len(mine) == len(preconditioner.weights):  # the layer is not frozen
                new = preconditioner([gradients[i] for i in mine])
                for i, gradient in zip(mine, new, strict=True):
                    gradients[i] = gradient
        return step._replace(gradients=gradients)
