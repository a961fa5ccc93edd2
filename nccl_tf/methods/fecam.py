"""FeCAM (Goswami et al., NeurIPS 2023): a Mahalanobis distance of its own to each class."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.learner.features import FeatureLearner, dense_of
from nccl_tf.learner.step import Step
from nccl_tf.methods.rows import fecam as rows

FARTHEST = 1e8
"""Squared distance to a class that has not been solved for; none is farther."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class FeCAM(FeatureLearner):
    r"""Predicts the class that is nearest in the metric of the class's own features.

    For pretrained networks: none of its weights changes, and neither optimizer nor learning rate
    has an effect. The features of an example are raised to the power $\lambda$ by their sizes,
    their signs kept (Tukey's transformation where none is negative), and divided by their norm. Of
    such $z$ there are for each class a mean $\mu_k$ and an unbiased covariance. When a task ends,
    each covariance is shrunk, $\Sigma_k + \gamma_1 v I + \gamma_2 u (1 1^T - I)$ with $v$ its mean
    variance and $u$ the mean of its other entries, and divided by its standard deviations to a
    correlation matrix $R_k$. The scores, which take the place of logits, are

    $-(z - \mu_k)^T R_k^{-1} (z - \mu_k)$,

    by the pseudo-inverse where $R_k$ is singular, as without shrinkage and with fewer examples than
    features. Directions of a negative eigenvalue, which $\gamma_2$ may make, are left out like
    those of 0. The defaults are those of the authors' code for vision transformers; for residual
    networks they shrink by $\gamma_1 = \gamma_2 = 1$ and take the power 0.5.

    Examples count one by one, however they are cut into batches and tasks; padding does not, nor
    does the size of a weight above 0, nor a further pass of a `fit`. Within a task scores are those
    of the end of the task before, and a class without any is farthest, in the loss of a step as far
    as the farthest of the others; `solve()` takes the examples so far. With one covariance for each
    of $C$ classes of features of width $d$ the learner keeps $12 C d^2$ bytes; a shared one, pooled
    over the classes, takes $12 d^2$.

    Args:
        network: A functional or Sequential model whose last layer is dense; that one's inputs are
            the features, and its weights are not used.
        fecam_shrinkage: $\gamma_1$.
        fecam_off_diagonal: $\gamma_2$.
        fecam_power: $\lambda$.
        fecam_covariance: "class", one for each, or "shared".
        **kwargs: As for `Learner`.

    Raises:
        UserError: The network ends otherwise, a number is out of range, or there are
            `known_classes`.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.FeCAM(nccl_tf.networks.mlp((28, 28, 1), 10), fecam_power=0.5)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "decomposes matrices in NumPy when a task ends",
        **rows.FECAM.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        fecam_shrinkage: float = 1.0,
        fecam_off_diagonal: float = 0.0,
        fecam_power: float = 1.0,
        fecam_covariance: str = "class",
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.fecam_shrinkage = fecam_shrinkage
        self.fecam_off_diagonal = fecam_off_diagonal
        self.fecam_power = fecam_power
        self.fecam_covariance = fecam_covariance
        width = self.width

        def matrices() -> tuple[int, ...]:
            return (self.num_classes if self._is_of_class else 1, width, width)

        def rows_of_all() -> tuple[int, int]:
            return (self.num_classes, width)

        self.counts = self.state("counts", lambda: (self.num_classes,), "float64")
        self.sums = self.state("sums", rows_of_all, "float64")
        self.products = self.state("products", matrices, "float64")
        self.whiteners = self.state("whiteners", matrices, "float32")
        far = float(np.sqrt(FARTHEST / width))
        self.centres = self.state("centres", rows_of_all, "float32", far)
        self.solved_counts = self.state("solved_counts", lambda: (self.num_classes,), "float64")
        self.statistics = (self.counts, self.sums)

    @property
    def _is_of_class(self) -> bool:
        return self.fecam_covariance == "class"

    def normed(self, features: tf.Tensor) -> tf.Tensor:
        """z, float64 [n, width], of features [n, width]; 0 where all are 0."""
        if self.fecam_power != 1:
            features = tf.sign(features) * tf.abs(features) ** self.fecam_power
        return tf.math.divide_no_nan(features, tf.norm(features, axis=1, keepdims=True))

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """The scores [n, classes] of features [n, width]."""
        normed = tf.cast(self.normed(features), tf.float32)
        # A product for each class: one of all would copy the whiteners into another order.
        whitened = tf.matmul(normed, self.whiteners.value)  # [classes or 1, n, width]
        squares = tf.reduce_sum(tf.square(whitened - self.centres.value[:, None]), axis=2)
        return -tf.minimum(tf.transpose(squares), FARTHEST)

    def scores_in_step(self, features: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        # A loss of 1e8 reads as one that diverges: classes to come are as far as the farthest.
        scores, is_solved = self.scores(features), self.solved_counts.value > 0
        lowest = tf.reduce_min(tf.where(is_solved, scores, 0.0), axis=1, keepdims=True)
        return tf.maximum(scores, lowest), ()  # NaN stays NaN, and its step is skipped.

    def serving_scores(self, features: Any) -> Any:
        ops = keras.ops
        features = ops.cast(features, "float64")
        if self.fecam_power != 1:
            features = ops.sign(features) * ops.power(ops.absolute(features), self.fecam_power)
        squares = ops.sum(ops.square(features), axis=1, keepdims=True)
        normed = ops.divide_no_nan(features, ops.sqrt(squares))
        whiteners, centres = self.whiteners.numpy(), self.centres.numpy()
        each = np.broadcast_to(whiteners, (self.num_classes, *whiteners.shape[1:]))
        kernel = each.transpose(1, 0, 2).reshape(self.width, -1)
        moved = dense_of(kernel, -centres.reshape(-1))(normed)
        moved = keras.layers.Reshape(centres.shape, dtype="float64")(moved)
        return -ops.minimum(ops.sum(ops.square(moved), axis=2), FARTHEST)

    def learned(
        self, features: tf.Tensor, labels: tf.Tensor, counted: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        """Counts and sums after examples, and what these add to the matrices of their classes."""
        normed, of_class = self.normed(features), self.rows_of_classes(labels, counted)
        if self._is_of_class:
            added = normed[:, :, None] * normed[:, None, :]
            places = tf.where(counted, labels, 0)  # Features of padding are 0.
        else:
            added = tf.matmul(normed, normed, transpose_a=True)[None]
            places = tf.zeros([1], tf.int64)
        counts = self.counts.value + tf.reduce_sum(of_class, 0)
        sums = self.sums.value + tf.matmul(of_class, normed, transpose_a=True)
        return counts, sums, added, places

    def apply_step(self, step: Step) -> None:
        *statistics, added, places = step.state
        super().apply_step(step._replace(state=statistics))
        # Of the matrices of all classes a step writes those of its own.
        self.products.value.scatter_add(tf.IndexedSlices(added, places))

    def on_task_end(self, task_id: int) -> None:
        self.solve()

    def solve(self) -> None:
        """Solve for the metrics of all classes by the examples so far."""
        counts, sums, products = (v.numpy() for v in (self.counts, self.sums, self.products))
        seen, changed = (np.flatnonzero(counts != v) for v in (0, self.solved_counts.numpy()))
        if not len(changed):
            return
        means = sums / np.maximum(counts, 1)[:, None]
        whiteners, centres = self.whiteners.numpy(), self.centres.numpy()
        self._warn_of_few(counts)
        if self._is_of_class:
            for k in changed:
                scatter = products[k] - counts[k] * np.outer(means[k], means[k])
                whiteners[k] = self._whitener(scatter / max(counts[k] - 1, 1))
                centres[k] = means[k] @ whiteners[k]
        else:
            scatter = products[0] - (means * counts[:, None]).T @ means
            whiteners[0] = self._whitener(scatter / max(counts.sum() - len(seen), 1))
            centres[seen] = means[seen] @ whiteners[0]
        self.whiteners.assign(whiteners)
        self.centres.assign(centres)
        self.solved_counts.assign(counts)

    def _warn_of_few(self, counts: np.ndarray) -> None:
        """Warn once where a metric without shrinkage is of fewer examples than features."""
        if self.fecam_shrinkage:
            return
        seen = np.flatnonzero(counts)
        free, what = int(np.sum(counts[seen] - 1)), "the shared covariance"
        if self._is_of_class:
            k = seen[np.argmin(counts[seen])]
            free, what = int(counts[k] - 1), f"that of class {k}"
        if free < self.width:
            self.warn_once(
                "few_examples",
                f"received fecam_shrinkage=0, and {what} is of {free} degrees of freedom in "
                f"{self.width} features: its metric is blind to the other directions; pass "
                'fecam_shrinkage=1, or fecam_covariance="shared" with more examples than features',
            )

    def _whitener(self, covariance: np.ndarray) -> np.ndarray:
        return whitener(covariance, self.fecam_shrinkage, self.fecam_off_diagonal)


def whitener(covariance: np.ndarray, shrinkage: float, off_diagonal: float) -> np.ndarray:
    """W [width, width] with W W^T the inverse of a shrunk covariance's correlations.

    A feature that does not vary at all, as of a single example, has the variance 1.

    Args:
        covariance: [width, width].
        shrinkage: Share of the mean variance that is added to the variances.
        off_diagonal: Share of the mean of the other entries that is added to these.
    """
    width = len(covariance)
    unit = np.eye(width)
    diagonal = np.trace(covariance)
    others = (covariance.sum() - diagonal) / max(width * (width - 1), 1)
    shrunk = covariance + shrinkage * diagonal / width * unit + off_diagonal * others * (1 - unit)
    variances = np.diagonal(shrunk)
    varies = variances > 0
    spread = np.sqrt(np.where(varies, variances, 1))
    correlations = np.where(np.outer(varies, varies), shrunk / np.outer(spread, spread), unit)
    try:
        return np.linalg.inv(np.linalg.cholesky(correlations)).T
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(correlations)
        kept = values > width * np.finfo(float).eps * values[-1]
        return vectors * np.where(kept, 1 / np.sqrt(np.where(kept, values, 1)), 0)
