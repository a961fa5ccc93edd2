"""Alignment of the classifier at a task's end, with features drawn from what is known of classes.

Zhang et al., SLCA: slow learner with classifier alignment, ICCV 2023.
"""

import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.choices import COVARIANCES
from nccl_tf.batch import Batch, class_numbers
from nccl_tf.errors import UserError, checked_at_least, checked_name
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.option import Option
from nccl_tf.networks.inspection import FeaturesAndHead

MOMENTUM, WEIGHT_DECAY, JITTER = 0.9, 5e-4, 1e-4
"""Of the head's SGD, and added to the diagonal of covariances: those of the authors' code."""
_LEAST_NORM = 1e-7
_DRAWS_KEY = 11
_INNER = "lora_kernel_a"
"""The matrix of adapters that has an axis of features."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class Alignment:
    r"""How a learner aligns its head when a task ends; its argument `alignment`.

    Of the features $z$ of each class there is a mean $\mu_k$, and of all classes together, or of
    each, a covariance $\Sigma$: a pass over a task's examples measures them when it ends. From the
    second task on, $m$ features are drawn of every class seen from $N(s_k \mu_k, \Sigma)$ in each
    epoch, with $s_k = 1 - d + d (t_k + 1)/(t + 1)$ for a class of task $t_k$ after task $t$, and
    the head learns them alone: by SGD with momentum 0.9, weight decay 0.0005 and a rate that falls
    to 0 as a cosine over the epochs, in batches of $m$. The softmax runs over the classes seen, of
    logits divided by the mean over tasks of their norm within the task, and by $\tau$.

    When the next task begins, the head goes back to what it was before the alignment, as in the
    authors' code. The rest of the network learns as its method says; its features must move slowly,
    because means and covariances stay those of the end of their task.

    Args:
        epochs: Passes over drawn features.
        drawn: $m$, of each class and epoch, and the features in a batch.
        covariance: "shared", one for all classes, or "class", the authors', one for each:
            8 classes width² bytes. 0.0001 is added to its diagonal: of fewer examples than
            features it gives no NaN, but features that hardly vary in the other directions.
        logit_norm: $\tau$; None for plain logits.
        decay: $d$.
        learning_rate: The head's first rate.

    Raises:
        UserError: A number is out of range.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", head="single", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.Finetune(network, stream_mask="task", alignment=nccl_tf.Alignment(epochs=2))
    ```
    """

    def __init__(
        self,
        epochs: int = 5,
        drawn: int = 256,
        covariance: str = COVARIANCES[0],
        logit_norm: float | None = 0.1,
        decay: float = 0.1,
        learning_rate: float = 0.01,
    ):
        self.epochs = checked_at_least("epochs", epochs, 1)
        self.drawn = checked_at_least("drawn", drawn, 1)
        self.covariance = checked_name("covariance", covariance, COVARIANCES)
        self.logit_norm = None if logit_norm is None else _above_0("logit_norm", logit_norm)
        self.learning_rate = _above_0("learning_rate", learning_rate)
        if not (_is_number(decay) and 0 <= decay <= 1):
            raise UserError(f"received decay={decay!r}, expected a number from 0 to 1")
        self.decay = float(decay)

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments, for saving."""
        return dict(vars(self))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Alignment":
        """From `get_config`."""
        return cls(**config)

    def unusual(self) -> dict[str, Any]:
        """Arguments that are not the defaults, but for the covariance, by name."""
        usual = Alignment(covariance=self.covariance).get_config()
        return {name: v for name, v in self.get_config().items() if v != usual[name]}


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _above_0(name: str, value: float) -> float:
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise UserError(f"received {name}={value!r}, expected a finite number above 0")
    return float(value)


class AlignHead(Option):
    """Measures a task's features when it ends, and aligns the head to those of all classes.

    Args:
        alignment: How; or the name of its covariance.
        network: Ends in a dense layer, the head.
        state: Makes variables that are saved with the learner, `Learner.state`.
        tasks_ended: int64, the learner's count of the tasks that have ended.
        seed: Seed of the draws.
        head: The learner's argument: the name of the layer that makes the logits, None to find it.
        beside: Arguments of the learner that leave no room for an alignment, None or their value.

    Raises:
        UserError: The network ends otherwise, or in another layer than `head`, its head is frozen,
            there are heads or averaged weights, or the covariance is unknown.
    """

    task_pass = ("end",)
    # A product of the features of a few examples takes little time beside adding it.
    rows_at_once = 512
    on_replicas = False

    def __init__(
        self,
        alignment: Alignment | str,
        network: keras.Model,
        state: Callable[..., keras.Variable],
        tasks_ended: keras.Variable,
        seed: int,
        head: str | None = None,
        **beside: Any,
    ):
        for name, value in beside.items():
            if value is not None:
                raise UserError(
                    f"received alignment and {name}, but an alignment trains one head of all "
                    "classes, and puts it back when a task begins: leave one of the two out"
                )
        made = Alignment(covariance=alignment) if isinstance(alignment, str) else alignment
        if not isinstance(made, Alignment):
            raise UserError(
                f"received alignment={alignment!r}, expected nccl_tf.Alignment(...) or the name of "
                f"a covariance, {' or '.join(COVARIANCES)}"
            )
        self.alignment = made
        self._parts = FeaturesAndHead(network)
        if head not in (None, self._parts.head.name):
            raise UserError(
                f"received alignment and head={head!r}, but an alignment trains the last layer, "
                f"here {self._parts.head.name!r}: end the network in {head!r}, or leave one out"
            )
        self._weights = self._parts.head.trainable_variables
        if not self._weights:
            raise UserError(
                f"received alignment for a network whose last layer {self._parts.head.name!r} is "
                "frozen: let it learn, head.trainable = True"
            )
        self._tasks_ended, self._seed = tasks_ended, seed
        width = self._parts.width

        def classes() -> int:
            return self._parts.head.units

        def sides() -> tuple[int, ...]:
            return (classes() if made.covariance == "class" else 1, width, width)

        self.counts = state("aligned_counts", lambda: (classes(),), "float64")
        self.means = state("aligned_means", lambda: (classes(), width), "float64")
        self.scatter = state("aligned_scatter", sides, "float64")
        self.freedom = state("aligned_freedom", lambda: sides()[:1], "float64")
        self.tasks = state("aligned_tasks", lambda: (classes(),), "int64")
        self.before = [
            state(f"head_before_{i}", v, v.dtype, grown=v) for i, v in enumerate(self._weights)
        ]
        self.is_aligned = state("head_is_aligned", (), "bool")

    @classmethod
    def of(cls, alignment: Alignment | str | None, *args: Any, **beside: Any) -> "AlignHead | None":
        """As the constructor; None without an alignment."""
        return None if alignment is None else cls(alignment, *args, **beside)

    def on_compile(self, optimizer: Any, loss: ExampleLoss) -> None:
        if not (loss.from_logits and loss.masked_value is not None):
            raise UserError(
                f"received {loss.described} and an alignment, whose head learns by the softmax "
                f"over one class for each example: {loss.instead('alignment=None')}"
            )

    # ---- the features of a task ------------------------------------------------------------------

    def task_rows(self, batch: Batch, when: str) -> Any:
        """Features [n, width], classes int64 [n] and whether each counts, bool [n]."""
        features = self._parts.features(batch.inputs, training=False)
        return features, class_numbers(batch.labels), batch.weights > 0

    def task_sums(self, rows: Any, when: str) -> Any:
        """Counts [classes], sums [classes, width] and products [1 or classes, width, width]."""
        features, labels, is_counted = rows
        features = tf.where(is_counted[:, None], tf.cast(features, tf.float64), 0)
        classes = self.counts.shape[0]
        of_class = tf.one_hot(labels, classes, dtype=tf.float64)
        of_class *= tf.cast(is_counted, tf.float64)[:, None]
        if self.alignment.covariance == "class":
            products = products_of_classes(features, tf.where(is_counted, labels, 0), classes)
        else:
            products = tf.matmul(features, features, transpose_a=True)[None]
        counts = tf.reduce_sum(of_class, 0)
        return counts, tf.matmul(of_class, features, transpose_a=True), products

    def on_task_pass(self, when: str, sums: Any) -> None:
        """Take the means and covariances of the task's classes in place of earlier ones of them."""
        if sums is None:
            return
        counts, totals, products = sums
        found = counts > 0
        means = totals / np.maximum(counts, 1)[:, None]
        freedom = self.freedom.numpy()
        if self.alignment.covariance == "class":
            for k in np.flatnonzero(found):  # One by one, since all take 8 classes width² bytes.
                own = products[k] - np.outer(totals[k], means[k])
                self.scatter.value.scatter_update(tf.IndexedSlices(own[None], [k]))
            freedom[found] = counts[found] - 1
        else:
            self.scatter.assign_add(products - totals.T @ means)
            freedom += np.sum(counts[found] - 1)
        self.freedom.assign(freedom)
        self.means.assign(np.where(found[:, None], means, self.means.numpy()))
        self.tasks.assign(np.where(found, self._tasks_ended.numpy(), self.tasks.numpy()))
        self.counts.assign(np.where(found, counts, self.counts.numpy()))

    def covariance(self, number: int) -> np.ndarray:
        """float64 [width, width], unbiased: of a class, or 0 for the shared one.

        0 where there is one example alone.
        """
        return self.scatter.value[number].numpy() / max(self.freedom.numpy()[number], 1)

    # ---- the head --------------------------------------------------------------------------------

    def on_task_begin(self, task_id: int) -> None:
        if bool(self.is_aligned.numpy()):
            for weight, before in zip(self._weights, self.before, strict=True):
                weight.assign(before.value)
            self.is_aligned.assign(False)

    def on_task_end(self, task_id: int) -> None:
        seen = np.flatnonzero(self.counts.numpy())
        if len(np.unique(self.tasks.numpy()[seen])) < 2:
            return
        for weight, before in zip(self._weights, self.before, strict=True):
            before.assign(weight.value)
        self.is_aligned.assign(True)
        self._align(seen)

    def _align(self, seen: np.ndarray) -> None:
        """Train the head on drawn features of the classes seen."""
        how, latest = self.alignment, int(self._tasks_ended.numpy()) - 1
        tasks = self.tasks.numpy()[seen]
        shares = 1 - how.decay + how.decay * (tasks + 1) / (latest + 1)
        means = shares[:, None] * self.means.numpy()[seen]
        if how.covariance == "class":
            axes = np.eye(self._parts.width)
            noise = [factor_of(self.covariance(k)).astype(np.float32) for k in seen]
        else:
            # Along its axes features are independent: no product with a factor for each of them.
            axes, deviations = principal_axes(self.covariance(0))
            noise = [deviations.astype(np.float32)] * len(seen)
        means = (means @ axes).astype(np.float32)
        learned = HeadInAxes(self._parts.head, axes)
        step = self._step(learned, seen, tasks)
        draws = np.random.default_rng([self._seed, _DRAWS_KEY, latest])
        drawn = np.empty((len(seen), how.drawn, self._parts.width), np.float32)
        features = drawn.reshape(-1, self._parts.width)
        labels = np.repeat(np.arange(len(seen)), how.drawn)
        for epoch in range(how.epochs):
            rate = how.learning_rate * (1 + math.cos(math.pi * epoch / how.epochs)) / 2
            draw_features(drawn, means, noise, draws)
            order = draws.permutation(len(labels)).reshape(-1, how.drawn)
            for rows in order:
                step(tf.constant(features[rows]), tf.constant(labels[rows]), tf.constant(rate))
        learned.give_back(seen)

    def _step(
        self, learned: "HeadInAxes", seen: np.ndarray, tasks: np.ndarray
    ) -> Callable[..., None]:
        """A step of SGD on features float32 [n, width] with places [n] among the classes seen."""
        speeds = [tf.Variable(tf.zeros_like(weight)) for weight in learned.weights]
        groups = (tasks[:, None] == np.unique(tasks)).astype(np.float32)

        @tf.function
        def step(features: tf.Tensor, places: tf.Tensor, rate: tf.Tensor) -> None:
            with tf.GradientTape() as tape:
                logits = tf.cast(tf.gather(learned(features), seen, axis=1), tf.float32)
                logits = normed(logits, groups, self.alignment.logit_norm)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(places, logits)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, learned.weights)

            def applied() -> tf.Tensor:
                for weight, speed, gradient in zip(learned.weights, speeds, gradients, strict=True):
                    tf.raw_ops.ResourceApplyMomentum(
                        var=weight.handle,
                        accum=speed.handle,
                        lr=tf.cast(rate, weight.dtype),
                        grad=gradient + WEIGHT_DECAY * weight,
                        momentum=tf.cast(MOMENTUM, weight.dtype),
                    )
                return tf.constant(True)

            is_finite = tf.math.is_finite(sum(tf.reduce_sum(tf.square(g)) for g in gradients))
            tf.cond(is_finite, applied, lambda: tf.constant(False))

        return step

    def get_config(self) -> dict[str, Any]:
        return {"alignment": self.alignment.covariance}


def factor_of(covariance: np.ndarray) -> np.ndarray:
    """L with L L^T a covariance [width, width] plus 0.0001 I, whether or not that is singular."""
    jittered = covariance + JITTER * np.eye(len(covariance))
    try:
        return np.linalg.cholesky(jittered)
    except np.linalg.LinAlgError:  # Of huge features rounding alone is more than the jitter.
        values, vectors = np.linalg.eigh(jittered)
        return vectors * np.sqrt(np.maximum(values, 0))


def principal_axes(covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a covariance [width, width] plus 0.0001 I the axes, in columns, and deviations [width]."""
    values, axes = np.linalg.eigh(covariance + JITTER * np.eye(len(covariance)))
    return axes, np.sqrt(np.maximum(values, 0))  # Of huge features rounding may exceed the jitter.


def draw_features(
    drawn: np.ndarray,
    means: np.ndarray,
    noise: Sequence[np.ndarray],
    draws: np.random.Generator,
) -> None:
    """Draw features of normal distributions, class after class.

    Args:
        drawn: float32 [classes, n, width], which the features are written into.
        means: float32 [classes, width].
        noise: Of each class deviations [width] of independent features, or a factor of the
            covariance as by `factor_of`, [width, width].
        draws: What they are drawn with.
    """
    for features, mean, spread in zip(drawn, means, noise, strict=True):
        draws.standard_normal(out=features, dtype=np.float32)
        if spread.ndim == 1:
            features *= spread
        else:
            features[:] = features @ spread.T
        features += mean


def products_of_classes(features: tf.Tensor, labels: tf.Tensor, classes: int) -> tf.IndexedSlices:
    """The sum of z z^T over the features z of each class that is there.

    Args:
        features: float64 [n, width].
        labels: int64 [n].
        classes: How many there are.

    Returns:
        [classes there, width, width].
    """
    width = features.shape[1]
    there, _ = tf.unique(labels)

    def product(label: tf.Tensor) -> tf.Tensor:
        own = tf.boolean_mask(features, labels == label)
        return tf.matmul(own, own, transpose_a=True)

    products = tf.map_fn(
        product, there, fn_output_signature=tf.TensorSpec([width, width], features.dtype)
    )
    return tf.IndexedSlices(products, there, tf.constant([classes, width, width], tf.int64))


class HeadInAxes:
    """A head whose weights learn in other axes of its features, beside the head itself.

    SGD takes the same steps in all axes: momentum and weight decay turn with the weights.

    Args:
        head: The layer.
        axes: In the columns of an orthogonal matrix [width, width].

    Attributes:
        weights: Variables, of the head's trainable ones in order.
    """

    def __init__(self, head: keras.layers.Dense, axes: np.ndarray):
        self._head, self._axes = head, axes
        turned = {v.path: self._turned(v, v.numpy(), axes.T) for v in head.variables}
        self.weights = [tf.Variable(turned[v.path]) for v in head.trainable_variables]
        self._fixed = [tf.constant(turned[v.path]) for v in head.non_trainable_variables]

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Logits [n, classes] of features [n, width] in the axes."""
        return self._head.stateless_call(self.weights, self._fixed, features)[0]

    def give_back(self, classes: np.ndarray) -> None:
        """Let the head have what the columns of some classes have learned.

        Args:
            classes: Their numbers; the other columns keep their weights.
        """
        for variable, value in zip(self._head.trainable_variables, self.weights, strict=True):
            learned = self._turned(variable, value.numpy(), self._axes)
            if variable.name != _INNER:
                before = np.array(variable.numpy())
                before[..., classes] = learned[..., classes]
                learned = before
            variable.assign(learned)

    def _turned(self, variable: keras.Variable, value: np.ndarray, axes: np.ndarray) -> np.ndarray:
        """A value of a weight in other axes, where it has one of features."""
        if variable.name not in ("kernel", _INNER):
            return value
        return (axes @ value.astype(np.float64)).astype(value.dtype)


def normed(logits: tf.Tensor, groups: np.ndarray, scale: float | None) -> tf.Tensor:
    """Logits [n, classes] divided by the mean over tasks of their norm within each, and by a scale.

    Args:
        logits: Of the classes seen.
        groups: float32 [classes, tasks], 1 at the task of each class.
        scale: tau; None to leave the logits as they are.
    """
    if scale is None:
        return logits
    squares = tf.matmul(tf.square(logits), tf.constant(groups))
    norms = tf.sqrt(tf.maximum(squares, _LEAST_NORM**2))  # Without a gradient of infinity at 0.
    return logits / tf.reduce_mean(norms, axis=1, keepdims=True) / scale
