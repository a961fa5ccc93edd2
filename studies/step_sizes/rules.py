"""The rules of the study of step sizes, a plugin: --plugin=studies/step_sizes/rules.py

Each takes the step x+ = x - alpha (u f_I + v g_J) with f_I the gradient on the memory batch, g_J
that on the stream batch and Lambda = <f_I, g_J>; u and v are derived in
747f793:docs/study/derivations.md.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import keras
import tensorflow as tf

import nccl_tf
from nccl_tf import step_sizes
from nccl_tf.batch import Batch
from nccl_tf.gradients import Products, products_by_variable
from nccl_tf.learner.columns import LOGITS
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.step import GradientPair, Logits, Logs

PRICE = nccl_tf.Hyperparameter(
    "price", "float", 2.0, ge=1.0, help="most that the memory gradient counts: c of the derivation"
)
SLACK = nccl_tf.Hyperparameter(
    "slack", "float", 1.0, gt=0.0, help="descent of the memory's loss in replay steps: s"
)
PULL = nccl_tf.Hyperparameter(
    "pull", "float", 1.0, gt=0.0, help="weight of the distance to the averaged network's logits"
)


def bounded(products: Products, price: float) -> tf.Tensor:
    """u = 1 + clip(-Lambda/|f_I|^2, 0, c - 1): replay, and a bounded projection beside it."""
    coefficient = step_sizes.projection_coefficient(*products[:2])
    return 1.0 + tf.clip_by_value(-coefficient, 0.0, price - 1.0)


def guaranteed(products: Products, slack: float, price: float) -> tf.Tensor:
    """u = clip(s - Lambda/|f_I|^2, 0, c): as much replay as the memory's descent lacks."""
    coefficient = step_sizes.projection_coefficient(*products[:2])
    return tf.clip_by_value(slack - coefficient, 0.0, price)


def fresh(products: Products, price: float) -> tf.Tensor:
    """u = clip(|g_J|/|f_I|, 1, c): the memory gradient as long as one of fresh examples."""
    _, memory, stream = products
    usable = memory > step_sizes.SMALLEST_SQUARED_NORM
    ratio = tf.sqrt(stream / tf.where(usable, memory, 1.0))
    return tf.where(usable, tf.clip_by_value(ratio, 1.0, price), 1.0)


class Candidate(nccl_tf.TwoGradientLearner):
    """Weighs the memory gradient by `memory_weight` and the stream gradient by 1."""

    projects: ClassVar[bool] = False

    def memory_weight(self, products: Products) -> tf.Tensor:
        """u, a scalar."""
        raise NotImplementedError

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        weight = self.memory_weight(products)
        return step_sizes.joint(products.lambda_, alpha, weight, tf.ones_like(weight))


@keras.saving.register_keras_serializable(package="study")
class AverageLoss(Candidate):
    """u = 2t/(t + 1), v = 2/(t + 1) after t ended tasks: the gradient of their average loss."""

    def step_sizes(
        self, products: Products, losses: Mapping[str, tf.Tensor], alpha: tf.Tensor
    ) -> step_sizes.StepSizes:
        return step_sizes.joint(products.lambda_, alpha, *self.weights_by_task(alpha.dtype))

    def weights_by_task(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        """u and v, scalars."""
        tasks = tf.cast(tf.maximum(self.progress.tasks_ended.value, 1), dtype)
        return 2.0 * tasks / (tasks + 1.0), 2.0 / (tasks + 1.0)


@keras.saving.register_keras_serializable(package="study")
class AverageLossMemory(AverageLoss):
    """u of `AverageLoss` and v = 1: which of its two weights does the work."""

    def weights_by_task(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        u, v = super().weights_by_task(dtype)
        return u, tf.ones_like(v)


@keras.saving.register_keras_serializable(package="study")
class AverageLossStream(AverageLoss):
    """v of `AverageLoss` and u = 1."""

    def weights_by_task(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
        u, v = super().weights_by_task(dtype)
        return tf.ones_like(u), v


class _Priced(Candidate):
    def __init__(self, *args: Any, price: float = 2.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.price = float(PRICE.check(price))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "price": self.price}


@keras.saving.register_keras_serializable(package="study")
class Bounded(_Priced):
    """NCCL's cases made continuous, and alpha_H bounded by c alpha."""

    def memory_weight(self, products: Products) -> tf.Tensor:
        return bounded(products, self.price)


@keras.saving.register_keras_serializable(package="study")
class Guaranteed(_Priced):
    """The step nearest to the stream's that lowers the memory's loss as a replay step would."""

    def __init__(self, *args: Any, slack: float = 1.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.slack = float(SLACK.check(slack))

    def memory_weight(self, products: Products) -> tf.Tensor:
        return guaranteed(products, self.slack, self.price)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "slack": self.slack}


@keras.saving.register_keras_serializable(package="study")
class Fresh(_Priced):
    """Corrects the memory gradient for what the network knows by heart."""

    def memory_weight(self, products: Products) -> tf.Tensor:
        return fresh(products, self.price)


@keras.saving.register_keras_serializable(package="study")
class BoundedByLayer(_Priced):
    """`Bounded` with Lambda and |f_I|^2 of each trainable variable for itself."""

    def combine(self, pair: GradientPair) -> tuple[Sequence[tf.Tensor], Logs]:
        _, logs = super().combine(pair)
        alone = products_by_variable(pair.memory, pair.stream)
        weights = tf.unstack(bounded(alone, self.price))
        return [
            tf.cast(weight, f.dtype) * f + g
            for weight, f, g in zip(weights, pair.memory, pair.stream, strict=True)
        ], logs

    def memory_weight(self, products: Products) -> tf.Tensor:
        # What is logged: the weight that all variables together would have.
        return bounded(products, self.price)


@keras.saving.register_keras_serializable(package="study")
class AveragedReference(Candidate):
    """u = v = 1; the memory's loss also asks for the logits of the averaged network."""

    def __init__(self, *args: Any, pull: float = 1.0, average_weights: Any = 0.99, **kwargs: Any):
        super().__init__(*args, average_weights=average_weights, **kwargs)
        self.pull = float(PULL.check(pull))

    def memory_losses(self, logits: Logits, replay: Batch) -> tf.Tensor:
        average = self.option(AverageWeights)
        assert average is not None  # It keeps one by default.
        averaged = zip(average.copy.originals, average.copy.variables, strict=True)
        with keras.StatelessScope([(v, tf.cast(a.value, v.dtype)) for v, a in averaged]):
            reference = tf.stop_gradient(self.raw_logits(replay, False))
        held = replay._replace(extras={LOGITS: reference})
        distances = self.logit_distances(logits.raw, held)
        return super().memory_losses(logits, replay) + self.pull * distances

    def memory_weight(self, products: Products) -> tf.Tensor:
        return tf.ones_like(products.lambda_)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "pull": self.pull}


for _name, _title, _learner, _numbers in (
    ("average_loss", "Average loss", AverageLoss, ()),
    ("average_loss_memory", "Average loss, memory alone", AverageLossMemory, ()),
    ("average_loss_stream", "Average loss, stream alone", AverageLossStream, ()),
    ("bounded", "Bounded", Bounded, (PRICE,)),
    ("guaranteed", "Guaranteed descent", Guaranteed, (PRICE, SLACK)),
    ("fresh", "Fresh gradients", Fresh, (PRICE,)),
    ("bounded_by_layer", "Bounded, by layer", BoundedByLayer, (PRICE,)),
    ("averaged_reference", "Averaged reference", AveragedReference, (PULL,)),
):
    nccl_tf.register_method(
        nccl_tf.Method(
            name=_name,
            title=_title,
            learner=_learner,
            memory="reservoir",
            hyperparameters=_numbers,
            options={"average_weights": 0.99} if _learner is AveragedReference else {},
        )
    )
