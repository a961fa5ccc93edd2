"""Deep SLDA (Hayes and Kanan, CVPR Workshops 2020): streaming linear discriminant analysis."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.learner.features import FeatureLearner, dense_of
from nccl_tf.methods.rows import slda as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class SLDA(FeatureLearner):
    r"""Linear discriminant analysis on the features of a frozen network, example by example.

    For pretrained networks: none of its weights changes, and neither optimizer nor learning rate
    has an effect. Of the features $z$ of each class there is a mean $\mu_k$ and a count $c_k$, and
    for all classes one covariance $S$ over $t$ examples. An example $(z, y)$ makes of them, in this
    order,

    $S \leftarrow (t S + t/(t+1) (z - \mu_y)(z - \mu_y)^T)/(t + 1)$,
    $\mu_y \leftarrow \mu_y + (z - \mu_y)/(c_y + 1)$.

    As in the authors' code $\mu_y$ is 0 before the first example of its class, whose distance to
    the origin is so a part of $S$. The scores, which take the place of logits, are

    $z^T P \mu_k - \mu_k^T P \mu_k / 2$ with $P = ((1 - \varepsilon) S + \varepsilon I)^{-1}$.

    Examples count one by one in order, however they are cut into batches and tasks; padding
    does not, nor does the size of a weight above 0, nor a further pass of a `fit`. Predictions are
    by all examples so far. $P \mu_k$ are solved for when a task ends, and in steps each time that
    the examples since then have doubled: the loss is that of a batch's scores before the batch is
    learned, by those solved for last. $S$ and the means are float64, whose rounding is below any
    $\varepsilon$. The authors can also start from means and a covariance fitted to the first
    classes at once, or keep that covariance; both need data before the stream, and are left out.

    Args:
        network: A functional or Sequential model whose last layer is dense; that one's inputs are
            the features, and its weights are not used.
        shrinkage: $\varepsilon$.
        **kwargs: As for `Learner`.

    Raises:
        UserError: The network ends otherwise, `shrinkage` is out of range, or there are
            `known_classes`.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.SLDA(nccl_tf.networks.mlp((28, 28, 1), 10), shrinkage=1e-3)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "solves linear systems, for which LiteRT has no operation",
        **rows.SLDA.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        shrinkage: float = 1e-4,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.shrinkage = shrinkage
        self.means = self.state("means", lambda: (self.num_classes, self.width), "float64")
        self.counts = self.state("counts", lambda: (self.num_classes,), "float64")
        self.covariance = self.state("covariance", (self.width, self.width), "float64")
        # P mu_k, with the count of examples that they are of, and that at which a step solves anew.
        self.directions = self.state(
            "directions", lambda: (self.num_classes, self.width), "float64"
        )
        self.solved = self.state("solved", (2,), "float64")
        self.statistics = (
            self.means, self.counts, self.covariance, self.directions, self.solved,
        )  # fmt: skip

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """The scores [n, classes] of features [n, width], 0 for a class without examples."""
        return self._scores_of(features, self.discriminants())

    def scores_in_step(self, features: tf.Tensor) -> tuple[tf.Tensor, tuple[tf.Tensor, ...]]:
        seen, (last, due) = tf.reduce_sum(self.counts.value), tf.unstack(self.solved.value)

        def solved() -> tuple[tf.Tensor, tf.Tensor]:
            gap = tf.maximum(2 * (due - last), 1)
            return self._solve(), tf.stack([seen, seen + gap])

        # Of a thousand features a factor takes several times as long as the rest of a step.
        state = tf.cond(seen >= due, solved, lambda: (self.directions.value, self.solved.value))
        return self._scores_of(features, state[0]), state

    def on_task_end(self, task_id: int) -> None:
        seen = float(np.sum(self.counts.numpy()))
        self.directions.assign(self.discriminants())
        self.solved.assign([seen, seen + 1])

    def discriminants(self) -> tf.Tensor:
        """The directions P mu_k of all examples so far, float64 [classes, width]."""
        is_solved = self.solved.value[0] == tf.reduce_sum(self.counts.value)
        return tf.cond(is_solved, lambda: self.directions.value, self._solve)

    def _solve(self) -> tf.Tensor:
        covariance = self.covariance.value
        unit = tf.eye(self.width, dtype=covariance.dtype)
        mixed = (1 - self.shrinkage) * covariance + self.shrinkage * unit
        factor = tf.linalg.cholesky(mixed)
        return tf.transpose(tf.linalg.cholesky_solve(factor, tf.transpose(self.means.value)))

    def _scores_of(self, features: tf.Tensor, directions: tf.Tensor) -> tf.Tensor:
        return tf.matmul(features, directions, transpose_b=True) + self._offsets(directions)

    def _offsets(self, directions: tf.Tensor) -> tf.Tensor:
        """The scores of features of 0, [classes]."""
        return -0.5 * tf.reduce_sum(self.means.value * directions, axis=1)

    def serving_scores(self, features: Any) -> Any:
        directions = self.discriminants()
        return dense_of(tf.transpose(directions), self._offsets(directions))(features)

    def learned(
        self, features: tf.Tensor, labels: tf.Tensor, counted: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Means, counts and covariance after examples that are learned one by one.

        The means that the examples meet are running means, and the covariance is the sum of what
        each adds, so that a batch takes no loop.

        Args:
            features: float64 [n, width], with zeros for padding.
            labels: int64 [n].
            counted: bool [n]; padding is not.
        """
        means, counts = self.means.value, self.counts.value
        ones = tf.cast(counted, features.dtype)
        of_class = self.rows_of_classes(labels, counted)
        before = tf.linalg.set_diag(
            tf.linalg.band_part(of_class @ tf.transpose(of_class), -1, 0), tf.zeros_like(ones)
        )
        known = tf.gather(counts, labels)
        totals = known[:, None] * tf.gather(means, labels) + before @ features
        met = tf.math.divide_no_nan(totals, (known + tf.reduce_sum(before, 1))[:, None])
        moves = (features - met) * ones[:, None]
        seen = tf.reduce_sum(counts)
        number = seen + tf.cumsum(ones, exclusive=True)
        added = tf.matmul(moves * (number / (number + 1))[:, None], moves, transpose_a=True)
        new_counts = counts + tf.reduce_sum(of_class, 0)
        sums = counts[:, None] * means + tf.matmul(of_class, features, transpose_a=True)
        new_means = tf.math.divide_no_nan(sums, new_counts[:, None])
        covariance = seen * self.covariance.value + added
        return new_means, new_counts, tf.math.divide_no_nan(covariance, tf.reduce_sum(new_counts))
