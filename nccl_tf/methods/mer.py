"""MER, meta-experience replay (Riemer et al., ICLR 2019)."""

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch, in_random_order
from nccl_tf.errors import UserError
from nccl_tf.gradients import lerp
from nccl_tf.learner import stateless
from nccl_tf.learner.replay import ReplayLearner, with_mean_one
from nccl_tf.learner.stateless import sgd_update
from nccl_tf.learner.step import Step
from nccl_tf.memories.memory import Memory
from nccl_tf.methods.rows import mer as rows
from nccl_tf.networks.inspection import has_convolutions, normalises_one_value
from nccl_tf.networks.layers import without_dropout
from nccl_tf.rng import apart
from nccl_tf.variables import assign_all, values_of

Weights = list[tf.Tensor]


class _Place(NamedTuple):
    """The state of a walk: the weights, and the network's other variables."""

    weights: Weights
    state: list[tf.Tensor]


@keras.saving.register_keras_serializable(package="nccl_tf")
class MER(ReplayLearner):
    r"""Walks through memory and stream by SGD, then goes a part of the way (Reptile).

    As the TF1 code base that the NCCL paper follows, for each stream batch: from $\theta$ an SGD
    step of $\alpha$ on each memory example, one by one, then one of $s \alpha$ on the stream batch,
    to $\theta_{\mathrm{end}}$; $\theta^+ = \theta + \gamma (\theta_{\mathrm{end}} - \theta)$.
    Algorithm 1 of the MER paper, which walks for each stream example by itself, is another form.

    $\alpha$ is the optimizer's learning rate. The optimizer receives $(\theta - \theta^+)/\alpha$,
    so that `keras.optimizers.SGD(alpha)` arrives at $\theta^+$. A single example passes through
    batch normalisation with statistics of its own, over height and width, and moves the moving
    averages, which the stream batch then moves last: so does the TF1 code base, which feeds
    `train_phase: True` for each (github.com/arslan-chaudhry/orthog_subspace, the branch "MER" of
    fc_permute_mnist.py, and `_bn` of utils/resnet_utils.py; on networks of convolutions its
    published rate diverges with moving averages). Single examples pass without dropout.
    Each example is masked by its own task. Dark replay keeps the logits that the walk meets the
    stream batch with, those after the memory examples.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir.
        meta_rate: $\gamma$, in (0, 1].
        stream_multiplier: s; None for 10, or 5 where the network has convolutions.
        mer_batch_norm: The statistics that single examples pass batch normalisation with:
            "example", or "moving" for the moving averages, with which alone one after a dense layer
            lets through what an example is; None for "example", or "moving" with one of those.
        **kwargs: As for `ReplayLearner`; `memory_batch_size` memory examples in random order make
            a walk.

    Raises:
        UserError: A number is out of range, `mer_batch_norm` is unknown, or single examples would
            pass a batch normalisation as zeros.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ReservoirMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.MER(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "optimizer_state": "ends a step a part of the way to where its walk has led",
        **rows.MER.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        meta_rate: float = 0.1,
        stream_multiplier: float | None = None,
        mer_batch_norm: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.meta_rate = meta_rate
        self.stream_multiplier = stream_multiplier
        self.mer_batch_norm = mer_batch_norm
        self._own_statistics = self._takes_own_statistics()
        default = 5 if has_convolutions(network) else 10
        self.multiplier = float(self.stream_multiplier or default)
        self.draws = self.state("draws", (), "int64")

    def _takes_own_statistics(self) -> bool:
        layer = normalises_one_value(self.network)
        if self.mer_batch_norm == "example" and layer is not None:
            raise UserError(
                f"received mer_batch_norm='example' for a network whose layer {layer.name!r} has "
                "one value of an example for each of its statistics, expected several, such as the "
                "pixels of an image: it would be 0 whatever the example; take "
                "mer_batch_norm='moving', or leave it out"
            )
        return self.mer_batch_norm != "moving" and layer is None

    def update(self, batch: Batch) -> Step:
        replay = self.memory.read(self.memory_batch_size)
        seed = apart(self.seed, self.draws.value.assign_add(1))
        return self.learn_and_apply(self.walk, batch, in_random_order(replay, seed))

    def walk(self, batch: Batch, examples: Batch) -> Step:
        """The gradients of one step.

        Args:
            batch: The stream batch.
            examples: The memory examples to walk on, in order, padding last.
        """
        others = self.network.non_trainable_variables
        start = _Place(values_of(self.network.trainable_variables), values_of(others))
        weights, state = self._one_by_one(start, examples)
        here = stateless.gradient(self, weights, batch, training=True, state=state)
        rate = self.optimizer.learning_rate
        end = sgd_update(weights, here.gradients, self.multiplier * rate)
        end = lerp(start.weights, end, self.meta_rate)
        assign_all(others, here.state)
        gradients = [
            tf.math.divide_no_nan(s - e, tf.cast(rate, s.dtype))
            for s, e in zip(start.weights, end, strict=True)
        ]
        return Step(gradients, here.logits, {"loss": here.loss})

    def _one_by_one(self, start: _Place, examples: Batch) -> _Place:
        """Where SGD steps, one on each example, lead; padding comes last and is not walked on.

        The mean over one example knows no weight: by those of classes its step is longer.
        """
        lengths = with_mean_one(examples.weights) if self.class_weighing.are_set else None

        def step(i: tf.Tensor, place: _Place) -> tuple[tf.Tensor, _Place]:
            weights, state = place
            with without_dropout(self.network):
                example = examples.map(lambda part: tf.gather(part, i[None]))
                here = stateless.gradient(
                    self, weights, example, self._own_statistics, self.memory_loss, state=state
                )
            rate = self.optimizer.learning_rate
            rate = rate if lengths is None else lengths[i] * rate
            end = sgd_update(weights, here.gradients, rate)
            return i + 1, _Place(end, here.state)

        count = tf.math.count_nonzero(examples.weights)
        return tf.while_loop(lambda i, _: i < count, step, (tf.constant(0, tf.int64), start))[1]
