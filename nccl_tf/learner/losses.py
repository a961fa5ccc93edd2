"""The loss that a learner minimises, for each example, from outputs and targets."""

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import PLACE_WEIGHTS, Batch, as_floatx, class_labels
from nccl_tf.errors import UserError, checked_name
from nccl_tf.keras_private import set_direction, takes_logits
from nccl_tf.learner.heads import (
    MASKED_LOGIT,
    STREAM_CLASSES,
    at_least_float32,
    select_logits,
)
from nccl_tf.learner.measures import wrapped_metric
from nccl_tf.learner.perplexity import Perplexity
from nccl_tf.networks.inspection import check_ends_in_logits, check_ends_in_probabilities

_SPARSE = keras.losses.SparseCategoricalCrossentropy
_ONE_HOT = (keras.losses.CategoricalCrossentropy, keras.losses.CategoricalFocalCrossentropy)
_BINARY = (keras.losses.BinaryCrossentropy, keras.losses.BinaryFocalCrossentropy)

_CLASS_OF_FUNCTION: Mapping[Any, type[keras.losses.Loss]] = {
    keras.losses.sparse_categorical_crossentropy: _SPARSE,
    keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
    keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
    keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
    keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
}
"""The class of those functions whose outputs a mask or an accuracy has to know."""


class ExampleLoss:
    """The loss of each example.

    Args:
        loss: None for softmax cross-entropy on logits with class numbers; else what Keras takes as
            a loss: a `keras.losses.Loss`, a function of targets and outputs, or the name of one. As
            in Keras, a name such as "sparse_categorical_crossentropy" takes probabilities.
        rank: Dimensions of the network's outputs, that of the examples included.
        classes: For your own loss, the form of its targets where they are classes: "numbers"
            or "one_hot" rows; None where they are none, and for losses of Keras, which say it.
        ends_in_probabilities: Whether the network ends in softmax or sigmoid; decides what a
            custom loss over classes takes.
        outputs: Of the network for each example or place; None where they are not known.

    Attributes:
        name: For messages.
        settings: Class and configuration of Keras's object; its name aside, which says nothing.
        is_default: Whether it is softmax cross-entropy on logits with class numbers.
        has_classes: Whether an example's target is one class, a number or a one-hot row.
        is_binary: Whether each output is a class of its own, which an example has or has not.
        is_one_unit: Whether there is one such output, which says class 1 of two: the targets 0 and
            1 are the numbers of classes, and one between them is of the nearer.
        is_softmax: Whether it is Keras's cross-entropy of a softmax over the classes of an example.
        masks_stream: Whether the stream's loss can leave out classes.
        takes_class_numbers: Whether a target is the number of a class.
        checks_labels: Whether a target has to be one of the learner's classes.
        checks_places: Whether the target at each place has to be.
        from_logits: Whether the loss takes logits, so that a network must not end in softmax or
            sigmoid.
        takes_probabilities: Whether it takes probabilities, so that a network must not end in a
            linear layer.
        masked_value: What takes the place of an output that a mask hides; None where no mask has a
            meaning.
        place_axes: Axes of an example's places; 0 where its outputs are those of one target.

    Raises:
        UserError: The loss is reduced by a sum, or it is no loss; or `classes` are unknown, of a
            loss of Keras, or of one with a target at each place.
    """

    def __init__(
        self,
        loss: Any = None,
        rank: int = 2,
        classes: str | None = None,
        ends_in_probabilities: bool = False,
        outputs: int | None = None,
    ):
        self._loss = _as_loss(loss)
        self.name = "the default loss" if loss is None else _name(loss)
        self._is_own = self._loss is not None and not _is_of_keras(self._loss)
        self._check_classes(classes, rank)
        config = {} if self._loss is None else self._loss.get_config()
        self.settings = {"class": type(self._loss).__name__, **config, "name": None}
        by_itself = classes is not None and not ends_in_probabilities
        logits = self._loss is None or bool(getattr(self._loss, "from_logits", by_itself))
        self.is_default = loss is None or (
            type(self._loss) is _SPARSE
            and logits
            and rank == 2
            and config.get("ignore_class") is None
        )
        self.from_logits = logits
        numbers, one_hot = classes == "numbers", classes == "one_hot"
        self._is_sparse = self.is_default or isinstance(self._loss, _SPARSE) or numbers
        self._is_one_hot = isinstance(self._loss, _ONE_HOT) or one_hot
        is_class = self._is_sparse or self._is_one_hot
        at_places, smooths = is_class and rank > 2, bool(config.get("label_smoothing"))
        self.takes_probabilities = not logits and isinstance(
            self._loss, (_SPARSE, *_ONE_HOT, *_BINARY)
        )
        self.is_binary = isinstance(self._loss, _BINARY)
        self.is_one_unit = self.is_binary and rank == 2 and outputs == 1
        self.has_classes = self.is_default or (is_class and rank == 2) or self.is_one_unit
        # A smoothed label gives every class a share, also those that a mask would hide.
        masks = self.has_classes and not (smooths or self.is_one_unit)
        self.masked_value = (MASKED_LOGIT if logits else 0.0) if masks else None
        self.is_softmax = self.has_classes and not (self._is_own or self.is_one_unit)
        self.masks_stream = (masks and logits) or (self.is_one_unit and not smooths)
        self.takes_class_numbers = self.has_classes and self._is_sparse
        self._at_places, self._smooths = at_places, smooths
        self.place_axes = rank - 2
        self._ignored = config.get("ignore_class")
        self.checks_labels = self.has_classes
        self.checks_places = at_places and self._is_sparse
        self._threshold = 0.0 if logits else 0.5

    def of(self, outputs: tf.Tensor, batch: Batch) -> tf.Tensor:
        """The loss of each example of a batch, [n].

        Args:
            outputs: Of the batch, [n, ...], masked.
            batch: With targets as `targets` made them.
        """
        return self(outputs, batch.labels, batch.place_weights)

    def __call__(
        self, outputs: tf.Tensor, targets: tf.Tensor, places: tf.Tensor | None = None
    ) -> tf.Tensor:
        """The loss of each example, [n], in at least float32.

        With a target at each place it is the mean over the places of an example that the loss does
        not ignore, by their weights, so that each example counts the same, whatever its length.

        Args:
            outputs: [n, ...], masked where there is a mask.
            targets: [n, ...], as `targets` made them.
            places: The weights of places, [n, places, ...]; None for 1 at each.

        Raises:
            UserError: The loss is one number for all examples, or one for an example whose places
                have weights.
        """
        if self.is_default:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, outputs)
        outputs = at_least_float32(outputs)
        # A function gets targets in the dtype of outputs from Keras, class numbers too.
        if not self._is_sparse or self._is_own:
            targets = in_the_form_of(outputs, tf.cast(targets, outputs.dtype))
        losses = tf.convert_to_tensor(self._loss.call(targets, outputs))
        if not losses.shape.rank:
            raise UserError(
                f"received {self.name}, which returns one number for a batch: expected a loss for "
                "each example, [n], because a memory's examples and padding are weighed one by one"
            )
        if places is not None and losses.shape.rank == 1:
            raise UserError(
                f"received weights of places with {self.name}, which returns one number for each "
                "example: return one for each place, [n, places], or leave sample_weight out"
            )
        return self.over_places(losses, targets, places)

    def over_places(
        self, values: tf.Tensor, targets: tf.Tensor, places: tf.Tensor | None = None
    ) -> tf.Tensor:
        """The mean of values [n, ...] over the places of an example that the loss counts, [n].

        Args:
            values: At each place, or one for each example.
            targets: As `targets` made them.
            places: As for the loss; those of a batch that was `counted` are 0 where the loss
                ignores the target.
        """
        axes = list(range(1, values.shape.rank))
        if not axes:
            return values
        if places is not None:
            places = tf.cast(places, values.dtype)
            if values.shape.rank > places.shape.rank:  # a loss of one's own, with further axes
                values = tf.reduce_mean(values, axis=axes[places.shape.rank - 1 :])
                axes = axes[: places.shape.rank - 1]
            total = tf.reduce_sum(tf.where(places > 0, places * values, 0), axis=axes)
            return tf.math.divide_no_nan(total, tf.reduce_sum(places, axis=axes))
        if self._ignored is None:
            return tf.reduce_mean(values, axis=axes)
        kept = tf.reshape(tf.not_equal(targets, self._ignored), tf.shape(values))
        total = tf.reduce_sum(tf.where(kept, values, 0), axis=axes)
        return tf.math.divide_no_nan(total, tf.reduce_sum(tf.cast(kept, values.dtype), axis=axes))

    def measured(self, batch: Batch, outputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The targets of a batch for metrics, and the weights of examples or of their places.

        Targets are [n, 1] where outputs are. With a class at each place weights are of places, [n,
        places, ...], even where each weighs 1, because some metrics, such as those of KerasHub,
        divide by the sum of the weights that they are given. A place that the loss ignores weighs
        0, and has class 0.

        Args:
            batch: Examples, `counted`.
            outputs: Of the batch, [n, ...].
        """
        weights, places = batch.weights, batch.place_weights
        targets = in_the_form_of(outputs, batch.labels)
        if places is None and not self._at_places:
            return targets, weights
        if places is None:
            shape = tf.shape(targets)[: self.place_axes + 1]
            places = tf.ones(shape)
            if self._ignored is not None:
                kept = tf.not_equal(targets, self._ignored)
                places = tf.cast(tf.reshape(kept, shape), places.dtype)
                targets = tf.where(kept, targets, 0)
        return targets, tf.reshape(weights, [-1, *[1] * self.place_axes]) * places

    def masked_places(self, batch: Batch, mask: tf.Tensor) -> Batch:
        """A batch whose places that a mask leaves out weigh 0.

        Args:
            batch: Examples.
            mask: bool [n, places, ...], or of fewer axes.
        """
        shape = tf.shape(batch.labels)[: self.place_axes + 1]
        places = tf.ones(shape) if batch.place_weights is None else batch.place_weights
        further = [1] * (self.place_axes + 1 - mask.shape.rank)
        mask = tf.reshape(mask, tf.concat([tf.shape(mask), further], 0))
        return batch.with_place_weights(places * tf.cast(mask, places.dtype))

    def metric_outputs(self, outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Outputs for metrics: a masked class is never a hit, and NaN is wrong.

        Of equal outputs Keras counts each as a hit of a top-k metric, and it takes NaN for class 0.
        So where the right class is hidden, the other hidden ones come before it, by the least that
        tells them apart; and where an output is NaN, every other class does.

        Args:
            outputs: [n, ...], masked where there is a mask.
            targets: [n, ...], as `targets` made them.
        """
        hidden, shown = (MASKED_LOGIT, 0.0) if self.from_logits else (0.0, 0.5)
        if self.is_binary:
            yes, no = (-MASKED_LOGIT, MASKED_LOGIT) if self.from_logits else (1.0, 0.0)
            targets = tf.cast(in_the_form_of(outputs, targets), outputs.dtype)
            wrong = tf.where(targets > 0.5, no, yes)
            return tf.where(tf.math.is_nan(outputs), tf.cast(wrong, outputs.dtype), outputs)
        if not (self._is_sparse or self._is_one_hot):
            return outputs
        if outputs.shape[-1] > 1 and targets.shape[1:] == outputs.shape[1:]:
            numbers = tf.argmax(targets, axis=-1)
        else:
            numbers = tf.reshape(tf.cast(targets, tf.int64), tf.shape(outputs)[:-1])
        right = tf.one_hot(numbers, outputs.shape[-1], True, False)
        value = tf.constant(hidden, outputs.dtype)
        is_nan = tf.reduce_any(tf.math.is_nan(outputs), axis=-1, keepdims=True)
        outputs = tf.where(is_nan, tf.where(right, value, shown), outputs)
        is_lost = tf.reduce_any(right & (outputs == value), axis=-1, keepdims=True)
        before = tf.constant(hidden + (64.0 if self.from_logits else 1e-30), outputs.dtype)
        return tf.where(is_lost & ~right & (outputs == value), before, outputs)

    def targets(self, labels: tf.Tensor) -> tf.Tensor:
        """Labels in the form in which a batch and a memory hold them.

        Args:
            labels: As `fit` delivers them.

        Returns:
            int64 [n] for class numbers; others in Keras's `floatx`, or the float that they are.
        """
        if self.takes_class_numbers:
            return class_labels(labels)
        if self._is_sparse:
            return tf.cast(labels, tf.int64)
        if self.is_one_unit and labels.shape.rank == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        labels = as_floatx(labels)
        return labels if labels.dtype.is_floating else tf.cast(labels, keras.config.floatx())

    def classes_of(self, outputs: int) -> int:
        """The number of classes that so many outputs stand for."""
        return 2 if self.is_one_unit else outputs

    def class_logits(self, outputs: tf.Tensor) -> tf.Tensor:
        """A logit for each class, [n, classes], of outputs [n, ...] in at least float32.

        Of one unit those of both classes: 0 and its logit, or the logarithms of their
        probabilities, which have the same softmax.
        """
        outputs = at_least_float32(outputs)
        if not self.is_one_unit:
            return outputs
        if self.from_logits:
            return tf.concat([tf.zeros_like(outputs), outputs], axis=-1)
        least = keras.config.epsilon()
        both = tf.concat([1.0 - outputs, outputs], axis=-1)
        return tf.math.log(tf.clip_by_value(both, least, 1.0 - least))

    def predicted(self, outputs: tf.Tensor) -> tf.Tensor:
        """The class that outputs [n, ...] say of each example, int64 [n]."""
        if self.is_one_unit:
            return tf.cast(outputs[:, 0] > self._threshold, tf.int64)
        return tf.argmax(outputs, axis=-1)

    def for_stream(self, outputs: tf.Tensor, batch: Batch) -> tf.Tensor:
        """Outputs of a stream batch, with the classes hidden that its loss leaves out.

        One unit whose other class is hidden is sure, so that its loss is 0.

        Args:
            outputs: [n, ...], masked by heads.
            batch: Of the stream; without a column of classes none is left out.
        """
        if STREAM_CLASSES not in batch.extras:
            return outputs
        keep = batch.extras[STREAM_CLASSES]
        if not self.is_one_unit:
            # One output of a softmax has fewer; on replicas the number is not known beforehand.
            if keep.shape[-1] != outputs.shape[-1]:
                keep = keep[:, : tf.shape(outputs)[-1]]
            return select_logits(keep, outputs)
        outputs = at_least_float32(outputs)
        no, yes = (MASKED_LOGIT, -MASKED_LOGIT) if self.from_logits else (0.0, 1.0)
        outputs = tf.where(keep[:, 1:], outputs, tf.constant(no, outputs.dtype))
        return tf.where(keep[:, :1], outputs, tf.constant(yes, outputs.dtype))

    def counted(self, batch: Batch) -> Batch:
        """A batch whose every label is one that the loss can take.

        An example of the class that the loss ignores gets weight 0, as in Keras, and so does one
        with that class at every place; one of weight 0, which may have any class number, gets class
        0. So do places.
        """
        places = batch.place_weights
        if places is not None:
            if self._ignored is not None:
                batch = batch.with_place_weights(tf.where(batch.labels != self._ignored, places, 0))
            if self._is_sparse:
                kept = tf.reshape(batch.extras[PLACE_WEIGHTS] > 0, tf.shape(batch.labels))
                batch = batch._replace(labels=tf.where(kept, batch.labels, 0))
            return batch
        counts = batch.weights != 0
        if self._ignored is not None:
            axes = list(range(1, batch.labels.shape.rank))
            counts &= tf.reduce_any(batch.labels != self._ignored, axis=axes)
            batch = batch._replace(weights=tf.where(counts, batch.weights, 0))
        if self.takes_class_numbers:
            batch = batch._replace(labels=tf.where(counts, batch.labels, 0))
        return batch

    def is_counted(self, labels: Any) -> Any:
        """bool [...]: which class numbers [...] the loss does not ignore; None for all of them."""
        return None if self._ignored is None else labels != self._ignored

    def metric(self, metric: Any, outputs: int) -> Any:
        """A metric that `compile` received, by its name too, as Keras takes it.

        It is made here, where Keras would make it during the first step and trace that step twice.

        Args:
            metric: As `compile` received it.
            outputs: Of the network, for each example or place.

        Raises:
            UserError: It is "accuracy", which means nothing with this loss, or not known.
        """
        if metric == "perplexity" and self._is_sparse:
            return Perplexity(self.from_logits)
        if metric not in ("accuracy", "acc"):
            known = _as_metric(metric)
            name = metric if isinstance(metric, str) else getattr(known, "__name__", None)
            if not isinstance(known, keras.metrics.Metric):
                known = keras.metrics.MeanMetricWrapper(known, name=name)
            if isinstance(metric, str):
                known.name = metric
            return self._wrapped(known, outputs)
        if self._is_sparse:
            return keras.metrics.SparseCategoricalAccuracy(name=metric)
        if self._is_one_hot:
            return keras.metrics.CategoricalAccuracy(name=metric)
        if self.is_binary:
            return keras.metrics.BinaryAccuracy(name=metric, threshold=self._threshold)
        if self._is_own:
            own = keras.metrics.MeanMetricWrapper(accuracy_by_shapes, name=metric)
            set_direction(own, "up")
            return own
        raise UserError(
            f"received the metric {metric!r} with {self.name}, which says nothing of classes: give "
            'a metric of its targets, such as "mae", or a keras.metrics object'
        )

    def _wrapped(self, metric: Any, outputs: int) -> Any:
        """A metric object, in the form in which it takes these targets and outputs.

        Raises:
            UserError: It takes logits, and the outputs are probabilities, or the other way round.
        """
        logits, is_perplexity = takes_logits(metric), type(metric).__name__ == "Perplexity"
        if (logits and self.takes_probabilities) or (
            is_perplexity and logits is not self.from_logits
        ):
            raise UserError(
                f"received the metric {metric.name!r} with from_logits={logits}, and "
                f"{self.name} takes {'logits' if self.from_logits else 'probabilities'}: give it "
                f"from_logits={self.from_logits}"
            )
        of_classes = self._is_sparse or self._is_one_hot
        return wrapped_metric(
            metric, outputs, numbers=self._is_sparse,
            activation=("softmax" if of_classes else "sigmoid") if self.from_logits else None,
            places=self.place_axes,
        )  # fmt: skip

    def _check_classes(self, classes: str | None, rank: int) -> None:
        if classes is None:
            return
        checked_name("form of classes", classes, ("numbers", "one_hot"))
        if not self._is_own:
            raise UserError(
                f"received classes={classes!r} with {self.name}, a loss of Keras, which says "
                "itself whether its targets are classes: leave classes out"
            )
        if rank != 2:
            raise UserError(
                f"received classes={classes!r} with a network whose outputs have {rank} "
                "dimensions: expected logits (None, classes), one class for each example"
            )

    def check_network(self, network: keras.Model) -> None:
        """Check that the network's outputs suit the loss, as far as its layers show.

        Raises:
            UserError: It ends in probabilities and the loss takes logits, or the other way round,
                or the loss was left out, and the outputs are not [n, classes].
        """
        shape = network.output_shape
        if self._loss is None and len(shape) != 2:
            raise UserError(
                f"received a network with outputs of shape {tuple(shape)}, expected logits "
                "(None, classes): end it in GlobalAveragePooling2D() or Flatten() and "
                "Dense(classes), or name the loss "
                "keras.losses.SparseCategoricalCrossentropy(from_logits=True) for a class at each "
                "place"
            )
        if self.from_logits:
            check_ends_in_logits(network)
        if self.takes_probabilities:
            check_ends_in_probabilities(network, self.name)

    def check(
        self, learner: str, default_because: str, classes_because: str, has_heads: bool
    ) -> None:
        """Check that a learner has a meaning for this loss.

        Args:
            learner: Its class, for the message.
            default_because: Why it takes the default loss alone; "" where it takes others.
            classes_because: Why it takes losses over the logits of classes alone; "" where it takes
                others.
            has_heads: Whether it has heads.

        Raises:
            UserError: It has none.
        """
        if default_because and not self.is_default:
            out = "" if self._at_places else "leave the loss out, or "
            raise UserError(
                f"received {self.described}, but {learner} {default_because}: {out}take another "
                "method"
            )
        has_logits = self.has_classes and (self.from_logits or self.is_one_unit)
        if classes_because and not has_logits:
            raise UserError(
                f"received {self.described}, but {learner} {classes_because}: "
                f"{self.instead('another method')}"
            )
        if has_heads and self.masked_value is None:
            raise UserError(
                f"received {self.described} with heads, whose masks need one class for each "
                f"example: {self.instead('no heads')}"
            )

    def weighed_classes(self, outputs: int) -> int:
        """How many classes there are to weigh examples by.

        Args:
            outputs: Of the network.

        Raises:
            UserError: An example has not one class.
        """
        if not self.has_classes:
            raise UserError(
                f"received class_weight and {self.described}, which does not have one class for "
                f"each example: {self.instead('sample_weight')}"
            )
        return self.classes_of(outputs)

    @property
    def described(self) -> str:
        """The loss for messages, with what keeps it from one class for each example."""
        at_places = " with a target at each place" if self._at_places else ""
        return self.name + (at_places or (" with label smoothing" if self._smooths else ""))

    def instead(self, other: str) -> str:
        """The end of a message, where a loss over one class for each example is needed.

        Args:
            other: What else may be given than such a loss.
        """
        if self._at_places:
            return f"take {other}, or end the network in logits (None, classes)"
        if self._smooths:
            return f"take {other}, or leave label_smoothing out"
        form = "a categorical cross-entropy with from_logits=True"
        own = ""
        if self._is_own and not self.has_classes:
            own = ', or compile(..., classes="numbers" or "one_hot") if its targets are classes'
        return f"take {other}, or {form}{own}"


def _as_loss(loss: Any) -> Any:
    if loss is None:
        return None
    if isinstance(loss, (list, tuple)) or (isinstance(loss, dict) and "class_name" not in loss):
        raise UserError(
            f"received the loss {loss!r}, a {type(loss).__name__}, expected one for the one output "
            "of the network: write a function that splits targets and outputs and returns the "
            "weighted sum for each example, as docs/several_outputs.md shows"
        )
    try:
        resolved = keras.losses.get(loss)
    except ValueError as error:
        raise UserError(
            f"received the loss {loss!r}: expected a keras.losses object, a function of targets "
            "and outputs, or the name of one"
        ) from error
    resolved = _CLASS_OF_FUNCTION.get(resolved, lambda: resolved)()
    if not isinstance(resolved, keras.losses.Loss):
        return _FunctionLoss(resolved)
    if resolved.reduction == "sum":
        raise UserError(
            f'received {_name(loss)} with reduction="sum": a step takes the mean over its '
            "examples; leave the reduction out, and raise the learning rate instead"
        )
    return resolved


def _as_metric(metric: Any) -> Any:
    try:
        made = keras.metrics.get(metric)
    except (KeyError, TypeError, ValueError):
        made = None
    if made is None:
        raise UserError(
            f"received the metric {metric!r}: expected a keras.metrics object, a function of "
            'targets and outputs, or the name of one, such as "accuracy"'
        )
    return made


def _is_of_keras(loss: keras.losses.Loss) -> bool:
    function = loss.function if isinstance(loss, _FunctionLoss) else type(loss)
    return str(getattr(function, "__module__", "")).partition(".")[0] == "keras"


def accuracy_by_shapes(targets: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    """1 where the largest output is at the example's class, else 0: float [n, ...]; NaN is wrong.

    As Keras resolves "accuracy": targets with a side less than outputs, or of one, are numbers of
    classes, others one-hot rows. For losses that do not say it.

    Raises:
        UserError: There is one output, which has no largest.
    """
    if outputs.shape[-1] == 1:
        raise UserError(
            'received the metric "accuracy" for a network with one output under a loss of your '
            "own, which has no threshold: give keras.metrics.BinaryAccuracy(threshold=0.0) for "
            "logits, 0.5 for probabilities"
        )
    if targets.shape.rank < outputs.shape.rank or targets.shape[-1] == 1:
        right = keras.metrics.sparse_categorical_accuracy(targets, outputs)
    else:
        right = keras.metrics.categorical_accuracy(targets, outputs)
    is_nan = tf.reduce_any(tf.math.is_nan(outputs), axis=-1)
    return tf.where(is_nan, tf.zeros_like(right), right)


def _name(loss: Any) -> str:
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return f"the loss {name}"


def in_the_form_of(outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Targets [n] for outputs [n, 1], or the other way round, as [n, 1] or [n]."""
    if targets.shape.rank == outputs.shape.rank - 1 and outputs.shape[-1] == 1:
        return targets[..., None]
    if targets.shape.rank == outputs.shape.rank + 1 and targets.shape[-1] == 1:
        return targets[..., 0]
    return targets


def check_one_each(values: tf.Tensor, weights: tf.Tensor) -> None:
    """Check that there is a value for each weight: others would be spread over the weights.

    Args:
        values: [..., n], such as the losses of examples.
        weights: [..., n].

    Raises:
        UserError: They are of different ranks.
    """
    shapes = [tf.convert_to_tensor(each).shape for each in (values, weights)]
    if None not in (ranks := [shape.rank for shape in shapes]) and ranks[0] != ranks[1]:
        received, weighed = (
            f"[{', '.join('n' if s is None else str(s) for s in shape)}]" for shape in shapes
        )
        raise UserError(
            f"received losses of the shape {received} for examples with weights {weighed}, "
            "expected a loss for each example, [n]: take no mean over them, and one over any "
            "further axis"
        )


def weighted_mean(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """The mean of values [..., n] by weights float32 [..., n]: [...]; 0 where all weights are.

    Raises:
        UserError: As for `check_one_each`.
    """
    check_one_each(values, weights)
    weights = tf.cast(weights, values.dtype)
    return tf.math.divide_no_nan(
        tf.reduce_sum(values * weights, axis=-1), tf.reduce_sum(weights, axis=-1)
    )


class _FunctionLoss(keras.losses.Loss):
    """A function of targets and outputs as a loss."""

    def __init__(self, function: Any):
        super().__init__()
        self.function = function

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return self.function(y_true, y_pred)
