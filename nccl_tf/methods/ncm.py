"""The nearest class mean on the features of a frozen network (Mensink et al., TPAMI 2013)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.learner.features import FeatureLearner, dense_of
from nccl_tf.methods.rows import ncm as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class NCM(FeatureLearner):
    r"""Predicts the class whose mean feature is nearest.

    For pretrained networks: none of its weights changes, and neither optimizer nor learning rate
    has an effect. Of the features $z$ of each class there is a mean $\mu_k$. The scores, which take
    the place of logits, are $z^T \mu_k - \lVert \mu_k \rVert^2 / 2$, which order the classes as
    $-\lVert z - \mu_k \rVert^2 / 2$ does. With the distance "cosine" they are
    $z^T \mu_k / (\lVert z \rVert \lVert \mu_k \rVert)$, as for the prototypes of Zhou et al.
    ("Revisiting class-incremental learning with pre-trained models", IJCV 2025). Mensink et al.
    also learn a metric, which is left out; `SLDA` has one, the inverse of the covariance.

    Examples count one by one, however they are cut into batches and tasks; padding does not, nor
    does the size of a weight above 0, nor a further pass of a `fit`. The means are float64.

    Args:
        network: A functional or Sequential model whose last layer is dense; that one's inputs are
            the features, and its weights are not used.
        ncm_distance: "euclidean" or "cosine".
        **kwargs: As for `Learner`.

    Raises:
        UserError: The network ends otherwise, `ncm_distance` is unknown, or there are
            `known_classes`.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.NCM(nccl_tf.networks.mlp((28, 28, 1), 10), ncm_distance="cosine")
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "sums features in float64, in which LiteRT computes nothing",
        **rows.NCM.refuses,
    }

    def __init__(self, network: keras.Model, *, ncm_distance: str = "euclidean", **kwargs: Any):
        super().__init__(network, **kwargs)
        self.ncm_distance = ncm_distance
        self.means = self.state("means", lambda: (self.num_classes, self.width), "float64")
        self.counts = self.state("counts", lambda: (self.num_classes,), "float64")
        self.statistics = (self.means, self.counts)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """The scores [n, classes] of features [n, width], 0 for a class without examples."""
        means = self.means.value
        if self.ncm_distance == "cosine":
            unit, means = (_normalised(rows) for rows in (features, means))
            return tf.matmul(unit, means, transpose_b=True)
        half_norms = 0.5 * tf.reduce_sum(tf.square(means), axis=1)
        return tf.matmul(features, means, transpose_b=True) - half_norms

    def serving_scores(self, features: Any) -> Any:
        means = self.means.value
        if self.ncm_distance == "cosine":
            features = keras.ops.cast(features, "float64")
            squares = keras.ops.sum(keras.ops.square(features), axis=1, keepdims=True)
            unit = keras.ops.divide_no_nan(features, keras.ops.sqrt(squares))
            return dense_of(tf.transpose(_normalised(means)))(unit)
        return dense_of(tf.transpose(means), -0.5 * tf.reduce_sum(tf.square(means), 1))(features)

    def learned(
        self, features: tf.Tensor, labels: tf.Tensor, counted: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        of_class = self.rows_of_classes(labels, counted)
        counts = self.counts.value + tf.reduce_sum(of_class, 0)
        sums = self.counts.value[:, None] * self.means.value
        sums += tf.matmul(of_class, features, transpose_a=True)
        return tf.math.divide_no_nan(sums, counts[:, None]), counts


def _normalised(rows: tf.Tensor) -> tf.Tensor:
    return tf.math.divide_no_nan(rows, tf.norm(rows, axis=1, keepdims=True))
