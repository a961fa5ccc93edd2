"""RanPAC (McDonnell et al., NeurIPS 2023): random features and a ridge classifier of their sums."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import scipy.linalg
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.learner.features import FeatureLearner, dense_of
from nccl_tf.methods.rows import ranpac as rows

RIDGES = 10.0 ** np.arange(-8, 9)
"""Those that are tried, as in the authors' code."""
HELD_OUT = 5
"""Every fifth example chooses the ridge."""
_PROJECTION_KEY = 3


@keras.saving.register_keras_serializable(package="nccl_tf")
class RanPAC(FeatureLearner):
    r"""A ridge classifier on randomly projected features of a frozen network, in one pass.

    For pretrained networks: none of its weights changes, and neither optimizer nor learning rate
    has an effect. The features $z$ of an example pass a random projection with a nonlinearity,
    $h = \max(0, z^T W)$, with $W$ drawn once from the standard normal distribution. Of all
    examples there are the Gram matrix $G = \sum h h^T$ and a sum for each class,
    $c_k = \sum_{y = k} h$. When a task ends, the weights of all classes are solved for anew,

    $w_k = (G + \lambda I)^{-1} c_k$,

    and the scores, which take the place of logits, are $h^T w_k$. The weights do
    not depend on the order of tasks: they are those that all examples would give at once. Until the
    first task ends the scores are 0, and within a later one they are those of the end of the task
    before; `solve()` takes the examples so far. Further passes of a `fit` count nothing.

    The ridge $\lambda$ is the one of $10^{-8}, 10^{-7}, \ldots, 10^8$ whose weights on four fifths
    of the examples have the least squared error on the others, as in the authors' code. That
    chooses on the features of the latest task, which it holds at once, and takes its last fifth.
    Here every fifth example of all tasks is held out, whose error follows from sums of its own:
    $\sum \lVert y - w^T h \rVert^2 = n - 2 \sum_k w_k^T c_k + \sum_k w_k^T G w_k$ over the $n$ held
    out. No example is kept.

    The authors' adaptation of the backbone to the first task is the user's to make: fine-tune the
    network on it, or adapters in it, before the learner is made. The matrices are float64; with
    $M$ projected features two of them hold $16 M^2$ bytes, and the end of a task takes time
    proportional to $M^3$.

    Args:
        network: A functional or Sequential model whose last layer is dense; that one's inputs are
            the features, and its weights are not used.
        projected_features: $M$. The paper has 10,000.
        ridge: $\lambda$, or None to choose it at every task's end.
        **kwargs: As for `Learner`; `seed` draws $W$.

    Raises:
        UserError: The network ends otherwise, a number is out of range, or there are
            `known_classes`.

    Example:
        >>> import nccl_tf
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.RanPAC(network, projected_features=500)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "solves for its weights in NumPy when a task ends",
        "loss": "solves for the labels' least squares in closed form",
        **rows.RANPAC.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        projected_features: int = 2000,
        ridge: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, **kwargs)
        self.projected_features = projected_features
        self.ridge = ridge
        size = self.projected_features
        draws = np.random.default_rng([self.seed, _PROJECTION_KEY])
        self.projection = self.state("projection", (self.width, size), "float32")
        self.projection.assign(draws.standard_normal((self.width, size), np.float32))
        self.gram = self.state("gram", (size, size), "float64")
        self.class_sums = self.state("class_sums", lambda: (self.num_classes, size), "float64")
        self.seen = self.state("seen", (), "int64")
        self.class_weights = self.state(
            "class_weights", lambda: (self.num_classes, size), "float64"
        )
        self.chosen_ridge = self.state("chosen_ridge", (), "float64", self.ridge or 0.0)
        self.statistics = (self.gram, self.class_sums, self.seen)
        if self.ridge is None:
            self.held_gram = self.state("held_gram", (size, size), "float64")
            self.held_sums = self.state("held_sums", lambda: (self.num_classes, size), "float64")
            self.statistics += (self.held_gram, self.held_sums)

    def projected(self, features: tf.Tensor) -> tf.Tensor:
        """h, float64 [n, M], of features [n, width]."""
        return tf.nn.relu(tf.matmul(features, tf.cast(self.projection.value, features.dtype)))

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """The scores [n, classes] of features [n, width]."""
        return tf.matmul(self.projected(features), self.class_weights.value, transpose_b=True)

    def serving_scores(self, features: Any) -> Any:
        rows = dense_of(self.projection.value, activation="relu")(features)
        return dense_of(tf.transpose(self.class_weights.value))(rows)

    def learned(
        self, features: tf.Tensor, labels: tf.Tensor, counted: tf.Tensor
    ) -> tuple[tf.Tensor, ...]:
        rows, of_class = self.projected(features), self.rows_of_classes(labels, counted)
        ones = tf.cast(counted, tf.int64)
        after = [*_sums(rows, of_class, self.gram, self.class_sums)]
        after.append(self.seen.value + tf.reduce_sum(ones))
        if self.ridge is None:
            number = self.seen.value + tf.cumsum(ones, exclusive=True)
            held = counted & (number % HELD_OUT == HELD_OUT - 1)
            held_rows = rows * tf.cast(held, rows.dtype)[:, None]
            after += _sums(held_rows, of_class, self.held_gram, self.held_sums)
        return tuple(after)

    def on_task_end(self, task_id: int) -> None:
        self.solve()

    def solve(self) -> None:
        """Solve for the weights of all classes by the examples so far, and choose the ridge."""
        gram, sums = self.gram.numpy(), self.class_sums.numpy()
        ridge = self.ridge if self.ridge is not None else self._best_ridge(gram, sums)
        self.chosen_ridge.assign(ridge)
        self.class_weights.assign(ridge_weights(gram, sums, ridge))

    def _best_ridge(self, gram: np.ndarray, sums: np.ndarray) -> float:
        """The ridge of the least error on the examples held out; 1 where none is."""
        held_gram, held_sums = self.held_gram.numpy(), self.held_sums.numpy()
        if not held_gram.any():
            return 1.0
        values, vectors = np.linalg.eigh(gram - held_gram)
        # All in the basis of the eigenvectors, where a ridge costs no solve.
        fitted, held = (sums - held_sums) @ vectors, held_sums @ vectors
        held_gram = vectors.T @ held_gram @ vectors

        def error(ridge: float) -> float:
            weights = _weights_along(values, fitted, ridge)
            return np.sum(weights * (weights @ held_gram)) - 2 * np.sum(weights * held)

        return float(min(RIDGES, key=error))


def _sums(
    rows: tf.Tensor, of_class: tf.Tensor, gram: keras.Variable, sums: keras.Variable
) -> tuple[tf.Tensor, tf.Tensor]:
    """A Gram matrix and the sums of the classes with the rows [n, M] of more examples."""
    return (
        gram.value + tf.matmul(rows, rows, transpose_a=True),
        sums.value + tf.matmul(of_class, rows, transpose_a=True),
    )


def ridge_weights(gram: np.ndarray, sums: np.ndarray, ridge: float) -> np.ndarray:
    """The weights [classes, M] of a ridge.

    Args:
        gram: G [M, M].
        sums: The sums of the classes [classes, M].
        ridge: Lambda.
    """
    regular = gram + ridge * np.eye(len(gram))
    try:
        return scipy.linalg.cho_solve(scipy.linalg.cho_factor(regular, overwrite_a=True), sums.T).T
    except scipy.linalg.LinAlgError:  # Rounding of the largest eigenvalues is more than the ridge.
        values, vectors = np.linalg.eigh(gram)
        return _weights_along(values, sums @ vectors, ridge) @ vectors.T


def _weights_along(values: np.ndarray, sums: np.ndarray, ridge: float) -> np.ndarray:
    """Weights [classes, M] in the basis of the Gram matrix's eigenvectors.

    Args:
        values: Eigenvalues, of which rounding makes some slightly negative.
        sums: The sums of the classes [classes, M] in that basis.
        ridge: Added to the eigenvalues.
    """
    return sums / (np.maximum(values, 0) + ridge)
