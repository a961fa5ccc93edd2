"""MER, meta-experience replay (Riemer et al., ICLR 2019)."""

from typing import Any, NamedTuple, Unpack

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import (
    BATCHES_PER_EXAMPLE,
    MER_BATCH_NORM,
    MER_VARIANT,
    META_RATE,
    STREAM_MULTIPLIER,
    WITHIN_BATCH_RATE,
)
from nccl_tf.batch import Batch, in_random_order
from nccl_tf.errors import UserError
from nccl_tf.gradients import lerp
from nccl_tf.learner.arguments import ReplayArguments
from nccl_tf.learner.gradients.functional import (
    AtWeights,
    LossesOf,
    current_weights,
    gradient_at,
    sgd_update,
)
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Step
from nccl_tf.memories.base import Memory
from nccl_tf.methods.registry import get_method
from nccl_tf.networks.inspection import has_convolutions, normalises_one_value
from nccl_tf.networks.layers import without_dropout
from nccl_tf.rng import apart
from nccl_tf.variables import assign_all, values_of

Weights = list[tf.Tensor]
_OF_VARIANT = {
    STREAM_MULTIPLIER: "current_multiplier",
    WITHIN_BATCH_RATE: "alg1",
    BATCHES_PER_EXAMPLE: "alg1",
}


class _Place(NamedTuple):
    """Where a walk has come to: the weights, and the network's other variables."""

    weights: Weights
    state: list[tf.Tensor]


@keras.saving.register_keras_serializable(package="nccl_tf")
class MER(ReplayLearner):
    r"""Walks through memory and stream by SGD, then goes a part of the way (Reptile).

    "current_multiplier" (the TF1 code base that the paper follows), for each stream batch: from
    $\theta$ an SGD step of $\alpha$ on each memory example, one by one, then one of $s \alpha$ on
    the stream batch, to $\theta_{\mathrm{end}}$;
    $\theta^+ = \theta + \gamma (\theta_{\mathrm{end}} - \theta)$.

    "alg1" (algorithm 1 of the paper), for each example of the stream batch: s times memory examples
    one by one and the stream example, with $\theta_W + \beta (\theta - \theta_W)$ after each; then
    $\gamma$ as above.

    $\alpha$ is the optimizer's learning rate. The optimizer receives $(\theta - \theta^+)/\alpha$,
    so that `keras.optimizers.SGD(alpha)` arrives at $\theta^+$. A single example passes through
    batch normalisation with statistics of its own, over height and width, and moves the moving
    averages, which the stream batch then moves last: so does the TF1 code base, which feeds
    `train_phase: True` for each (github.com/arslan-chaudhry/orthog_subspace, the branch "MER" of
    fc_permute_mnist.py, and `_bn` of utils/resnet_utils.py; on networks of convolutions its
    published rate diverges with moving averages). Single examples pass without dropout.
    Each example is masked by its own task. Dark replay keeps the logits that the walk meets the
    stream batch with, of "current_multiplier" those after its memory examples.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A reservoir.
        mer_variant: "current_multiplier" or "alg1".
        meta_rate: $\gamma$, in (0, 1].
        stream_multiplier: s of "current_multiplier"; None for 10, or 5 where the network has
            convolutions.
        within_batch_rate: $\beta$ of "alg1", in (0, 1].
        batches_per_example: s of "alg1".
        mer_batch_norm: The statistics that single examples pass batch normalisation with:
            "example", or "moving" for the moving averages, with which alone one after a dense layer
            lets through what an example is; None for "example", or "moving" with one of those.
        **kwargs: As for `ReplayLearner`; `memory_batch_size` memory examples in random order make
            a walk.

    Raises:
        UserError: A number is out of range or not one of the variant, `mer_variant` is unknown, or
            single examples would pass a batch normalisation as zeros.
    """

    refuses = get_method("mer").refuses
    fast_paths = ("deferred_logs",)

    def __init__(
        self,
        network: keras.Model,
        memory: Memory,
        *,
        mer_variant: str = "current_multiplier",
        meta_rate: float = 0.1,
        stream_multiplier: float | None = None,
        within_batch_rate: float = 1.0,
        batches_per_example: int = 1,
        mer_batch_norm: str | None = None,
        **kwargs: Unpack[ReplayArguments],
    ):
        super().__init__(network, memory, **kwargs)
        self.mer_variant = MER_VARIANT.check(mer_variant)
        self.meta_rate = float(META_RATE.check(meta_rate))
        self.stream_multiplier = STREAM_MULTIPLIER.check(stream_multiplier)
        self.within_batch_rate = float(WITHIN_BATCH_RATE.check(within_batch_rate))
        self.batches_per_example = int(BATCHES_PER_EXAMPLE.check(batches_per_example))
        self._refuse_unused()
        self.mer_batch_norm = MER_BATCH_NORM.check(mer_batch_norm)
        self._own_statistics = self._takes_own_statistics()
        default = 5 if has_convolutions(network) else 10
        self.multiplier = float(self.stream_multiplier or default)
        self.draws = self._state("draws", (), "int64", 0)

    def _refuse_unused(self) -> None:
        for number, of in _OF_VARIANT.items():
            value = getattr(self, number.name)
            if value != number.default and self.mer_variant != of:
                raise UserError(
                    f"received {number.name}={value:g} with mer_variant={self.mer_variant!r}, "
                    f"which has no such number: leave it out, or take mer_variant={of!r}"
                )

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
        if self.mer_variant == "current_multiplier":
            return self.learn_and_apply(batch, self._walk())
        count = tf.shape(batch.labels)[0] * self.batches_per_example
        one = self._walk().map(lambda part: tf.TensorSpec(part.shape, part.dtype))
        walks = tf.map_fn(
            lambda _: self._walk(), tf.range(count), fn_output_signature=one, parallel_iterations=1
        )
        return self.learn_and_apply(batch, walks)

    def _walk(self) -> Batch:
        """Memory examples in uniformly random order, padding last."""
        replay = self.memory.read(self.memory_batch_size)
        return in_random_order(replay, apart(self.seed, self.draws.value.assign_add(1)))

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        """The gradients of one step.

        Args:
            batch: The stream batch.
            *replays: The walk; of "alg1" a stack of them, `batches_per_example` for each example.
        """
        (replay,) = replays
        others = self.network.non_trainable_variables
        start = _Place(current_weights(self), values_of(others))
        variant = self._alg1 if self.mer_variant == "alg1" else self._current_multiplier
        end, here = variant(start, batch, replay)
        assign_all(others, here.state)
        rate = self.optimizer.learning_rate
        gradients = [
            tf.math.divide_no_nan(s - e, tf.cast(rate, s.dtype))
            for s, e in zip(start.weights, end, strict=True)
        ]
        return Step(gradients, here.logits, {"loss": here.loss})

    def _current_multiplier(
        self, start: _Place, batch: Batch, walk: Batch
    ) -> tuple[Weights, AtWeights]:
        weights, state = self._one_by_one(start, walk, self.memory_losses)
        here = gradient_at(self, weights, batch, training=True, state=state)
        rate = self.multiplier * self.optimizer.learning_rate
        end = sgd_update(weights, here.gradients, rate)
        return lerp(start.weights, end, self.meta_rate), here

    def _alg1(self, start: _Place, batch: Batch, walks: Batch) -> tuple[Weights, AtWeights]:
        def example(i: tf.Tensor, first: _Place) -> tuple[tf.Tensor, _Place]:
            def around(j: tf.Tensor, place: _Place) -> tuple[tf.Tensor, _Place]:
                walk = _at(walks, i * self.batches_per_example + j)
                end = self._one_by_one(place, walk, self.memory_losses)
                end = self._one_by_one(end, _row(batch, i), self.stream_losses)
                return j + 1, _part_of_the_way(place, end, self.within_batch_rate)

            end = tf.while_loop(
                lambda j, _: j < self.batches_per_example, around, (tf.constant(0), first)
            )[1]
            return i + 1, _part_of_the_way(first, end, self.meta_rate)

        def real_example(i: tf.Tensor, place: _Place) -> tuple[tf.Tensor, _Place]:
            return tf.cond(batch.weights[i] > 0, lambda: example(i, place), lambda: (i + 1, place))

        count = tf.shape(batch.labels)[0]
        end = tf.while_loop(lambda i, _: i < count, real_example, (tf.constant(0), start))[1]
        here = gradient_at(self, start.weights, batch, training=True, state=end.state)
        return end.weights, here

    def _one_by_one(self, start: _Place, rows: Batch, losses_of: LossesOf) -> _Place:
        """Where SGD steps, one on each row, lead; padding comes last and is not walked on."""

        def step(i: tf.Tensor, place: _Place) -> tuple[tf.Tensor, _Place]:
            weights, state = place
            with without_dropout(self.network):
                here = gradient_at(
                    self, weights, _row(rows, i), self._own_statistics, losses_of, state=state
                )
            end = sgd_update(weights, here.gradients, self.optimizer.learning_rate)
            return i + 1, _Place(end, here.state)

        count = tf.math.count_nonzero(rows.weights, dtype=tf.int32)
        return tf.while_loop(lambda i, _: i < count, step, (tf.constant(0), start))[1]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "mer_variant": self.mer_variant,
            "meta_rate": self.meta_rate,
            "stream_multiplier": self.stream_multiplier,
            "within_batch_rate": self.within_batch_rate,
            "batches_per_example": self.batches_per_example,
            "mer_batch_norm": self.mer_batch_norm,
        }


def _part_of_the_way(start: _Place, end: _Place, rate: float) -> _Place:
    return _Place(lerp(start.weights, end.weights, rate), end.state)


def _row(batch: Batch, i: tf.Tensor) -> Batch:
    return batch.map(lambda part: tf.gather(part, i[None]))


def _at(batches: Batch, i: tf.Tensor) -> Batch:
    return batches.map(lambda part: part[i])
