"""GEM (Lopez-Paz and Ranzato, NeurIPS 2017, "Gradient episodic memory for continual learning")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import scipy.optimize
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.gradients import accumulation_dtype
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.rows import gem as rows


@keras.saving.register_keras_serializable(package="nccl_tf")
class GEM(Learner):
    r"""Projects the stream gradient so that it points against no past task's gradient.

    A past task's gradient $g_k$ is taken on all that the memory holds of it. Where some
    $\langle g_J, g_k \rangle < 0$, $x^+ = x - \alpha (g_J + \sum_k v_k g_k)$ with the $v$ of
    `dual_weights`; else, and where the quadratic program cannot be solved ("qp_fallback", counted),
    $x^+ = x - \alpha g_J$.

    Args:
        network: Any Keras model from inputs to one logit per class.
        memory: A ring.
        gem_margin: $\gamma$, least $v_k$ of a projected step ("memory strength").
        gem_ridge: Added to the diagonal of the $g_k$'s inner products.
        batch_norm: How the batches pass through batch normalisation, past tasks first: "separate",
            each with its own statistics, or "frozen", with the moving averages.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range, or a name is unknown.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.RingMemory(5, [[0, 1], [2, 3]], (28, 28, 1))
        >>> learner = nccl_tf.GEM(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    memory_class = RingMemory
    log_names: ClassVar[tuple[str, ...]] = ("loss", "violation", "qp_fallback")
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "solves a quadratic program in NumPy in every step",
        "optimizer_state": (
            "projects the gradient so that a step along it raises no loss of the past"
        ),
        "jit_compile": "solves a quadratic program in NumPy in every step",
    }
    cumulative: ClassVar[tuple[str, ...]] = ("qp_fallback",)

    def __init__(
        self,
        network: keras.Model,
        memory: RingMemory,
        *,
        gem_margin: float = 0.5,
        gem_ridge: float = 0.001,
        batch_norm: str = "separate",
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.gem_margin = gem_margin
        self.gem_ridge = gem_ridge
        self.batch_norm = batch_norm

    def update(self, batch: Batch) -> Step:
        return self.learn_and_apply(self.project, batch, self.memory.read_tasks())

    def project(self, batch: Batch, past: Batch) -> Step:
        """The gradients of one step.

        Args:
            batch: The stream batch.
            past: All examples of every task, a batch with parts [tasks, examples, ...].
        """
        logits, loss, gradient, references = self._gradients(batch, past)
        numbers: Any = (self.gem_margin, self.gem_ridge)
        weights, flags = tf.numpy_function(
            lambda *arrays: projection(*arrays, *numbers),
            [
                tf.matmul(references, references, transpose_b=True),
                tf.linalg.matvec(references, gradient),
                tf.reduce_any(past.weights > 0, axis=1),
            ],
            [references.dtype, references.dtype],
            stateful=False,
        )
        weights, flags = (
            tf.ensure_shape(weights, [references.shape[0]]),
            tf.ensure_shape(flags, [2]),
        )
        projected = gradient + tf.linalg.matvec(references, weights, transpose_a=True)
        logs = {"loss": loss, "violation": flags[0], "qp_fallback": flags[1]}
        return Step(self._split(projected), logits, logs)

    def _gradients(
        self, batch: Batch, past: Batch
    ) -> tuple[Logits, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Logits, loss, $g_J$ [d] and the past gradients [tasks, d], 0 for tasks without
        examples."""
        training = self.batch_norm == "separate"
        tasks = past.labels.shape[0]
        size = sum(int(np.prod(v.shape)) for v in self.trainable_variables)
        dtype = accumulation_dtype(self.trainable_variables)

        def reference(task: tf.Tensor, references: tf.TensorArray) -> tuple[Any, Any]:
            examples = past.map(lambda part: part[task])
            gradient = tf.cond(
                tf.reduce_any(examples.weights > 0),
                lambda: self._gradient(examples, training)[0],
                lambda: tf.zeros([size], dtype),
            )
            return task + 1, references.write(task, gradient)

        _, references = tf.while_loop(
            lambda task, _: task < tasks,
            reference,
            (0, tf.TensorArray(dtype, tasks, element_shape=[size])),
            maximum_iterations=tasks,
            parallel_iterations=1,
        )
        gradient, logits, loss = self._gradient(batch, training, regularized=True)
        return logits, loss, gradient, references.stack()

    def _gradient(
        self, batch: Batch, training: bool, regularized: bool = False
    ) -> tuple[tf.Tensor, Logits, tf.Tensor]:
        """The gradient of the mean loss as one vector [d], the logits and the mean loss."""

        def loss_of() -> tuple[tf.Tensor, Any]:
            logits = self.forward(batch, training)
            loss = self.stream_loss(logits, batch)
            return loss + (self.regularization() if regularized else 0.0), (logits, loss)

        gradients, (logits, loss) = self.gradient(loss_of)
        dtype = accumulation_dtype(gradients)
        return tf.concat([tf.reshape(tf.cast(g, dtype), [-1]) for g in gradients], 0), logits, loss

    def _split(self, vector: tf.Tensor) -> list[tf.Tensor]:
        """One vector over all trainable variables as a tensor per variable."""
        variables = self.trainable_variables
        parts = tf.split(vector, [int(np.prod(v.shape)) for v in variables])
        return [
            tf.cast(tf.reshape(part, v.shape), v.dtype)
            for part, v in zip(parts, variables, strict=True)
        ]


def dual_weights(gram: np.ndarray, products: np.ndarray, margin: float, ridge: float) -> np.ndarray:
    """v that minimises v' (G'G + ridge I) v / 2 + (G'g)' v subject to v >= margin.

    g + G v is then, for margin 0 and ridge 0, the point nearest to g that no past gradient (column
    of G) points against: the dual of GEM's quadratic program (equation 11 there).

    Args:
        gram: G'G, float [k, k].
        products: G'g, float [k].
        margin: Lower bound of v.
        ridge: Added to the diagonal of G'G.

    Returns:
        float64 [k].

    Raises:
        ValueError, RuntimeError or numpy.linalg.LinAlgError: The program is not finite, its past
            gradients are 0, or it is too ill-conditioned for the solver.
    """
    gram = np.asarray_chkfinite(gram)
    matrix = (gram + gram.T).astype(np.float64) / 2 + ridge * np.eye(len(gram))
    products = products.astype(np.float64)
    # With v = u + margin and matrix = A'A it is the least |A u - b|^2 over u >= 0. The eigenvalues
    # that are 0 but for rounding are left out, so that equal past gradients have a solution too.
    values, vectors = np.linalg.eigh(matrix)
    kept = values > max(values[-1], 0.0) * len(gram) * np.finfo(gram.dtype).eps
    if not kept.any():
        raise np.linalg.LinAlgError("no past gradient differs from 0")
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    slope = products + matrix @ np.full(len(gram), margin)
    target = -(vectors.T @ slope) / roots
    solution, _ = scipy.optimize.nnls(roots[:, None] * vectors.T, target, maxiter=100 * len(gram))
    return solution + margin


def projection(
    gram: np.ndarray,
    products: np.ndarray,
    known: np.ndarray,
    margin: float,
    ridge: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The weights of the past gradients in GEM's step, all 0 where none is violated.

    Args:
        gram: Inner products of the past gradients, float [tasks, tasks].
        products: Their inner products with the stream gradient, float [tasks].
        known: bool [tasks], the tasks that have a past gradient.
        margin: As for `dual_weights`.
        ridge: As for `dual_weights`.

    Returns:
        The weights, [tasks] in the dtype of `gram`, and two flags in that dtype: whether a past
        gradient was violated, and whether the program had no solution, so that the weights are 0.
    """
    weights = np.zeros_like(products)
    if not (products[known] < 0).any():
        return weights, np.array([0, 0], gram.dtype)
    try:
        dual = dual_weights(gram[np.ix_(known, known)], products[known], margin, ridge)
        weights[known] = np.asarray_chkfinite(dual, gram.dtype)
    except (ValueError, RuntimeError, np.linalg.LinAlgError):
        return weights, np.array([1, 1], gram.dtype)
    return weights, np.array([1, 0], gram.dtype)
