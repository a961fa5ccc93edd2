"""GEM (Lopez-Paz and Ranzato, NeurIPS 2017, "Gradient episodic memory for continual learning")."""

import importlib.util
from typing import Any, ClassVar, Unpack

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import (
    GEM_BATCH_NORM,
    GEM_MARGIN,
    GEM_RIDGE,
    GEM_SOLVER,
)
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.gradients import accumulation_dtype
from nccl_tf.learner.arguments import LearnerArguments
from nccl_tf.learner.memory_learner import MemoryLearner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.learner.task_model import weighted_mean
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.gem.projection import projection


@keras.saving.register_keras_serializable(package="nccl_tf")
class GEM(MemoryLearner):
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
        gem_solver: "nnls" (SciPy) or "quadprog" (the package of that name).
        batch_norm: How the batches pass through batch normalisation, past tasks first: "separate",
            each with its own statistics, or "frozen", with the moving averages.
        **kwargs: As for `Learner`.

    Raises:
        UserError: A number is out of range, a name is unknown, or quadprog is not installed.
    """

    memory_class = RingMemory
    log_names: ClassVar[tuple[str, ...]] = ("loss", "violation", "qp_fallback")
    fast_paths = ("deferred_logs",)
    cumulative: ClassVar[tuple[str, ...]] = ("qp_fallback",)

    def __init__(
        self,
        network: keras.Model,
        memory: RingMemory,
        *,
        gem_margin: float = 0.5,
        gem_ridge: float = 0.001,
        gem_solver: str = "nnls",
        batch_norm: str = "separate",
        **kwargs: Unpack[LearnerArguments],
    ):
        super().__init__(network, memory, **kwargs)
        self.gem_margin = float(GEM_MARGIN.check(gem_margin))
        self.gem_ridge = float(GEM_RIDGE.check(gem_ridge))
        self.gem_solver = GEM_SOLVER.check(gem_solver)
        self.batch_norm = GEM_BATCH_NORM.check(batch_norm)
        if self.gem_solver == "quadprog" and importlib.util.find_spec("quadprog") is None:
            raise UserError(
                "--gem_solver=quadprog needs the package quadprog, which is not installed: install "
                "it with `pip install quadprog`, or leave the flag out"
            )

    def update(self, batch: Batch) -> Step:
        # Not under XLA as a whole, because the quadratic program is solved outside of it.
        return self._one_step(batch, self.memory.read_tasks())

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        """The gradients of one step.

        Args:
            batch: The stream batch.
            *replays: All examples of every task, a batch with parts [tasks, examples, ...].
        """
        (past,) = replays
        logits, loss, gradient, references = self.under_xla(self._gradients)(batch, past)
        numbers: Any = (self.gem_margin, self.gem_ridge, self.gem_solver)
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
        with tf.GradientTape() as tape:
            logits = self.forward(batch, training)
            losses = self.stream_losses(logits, batch)
            loss = weighted_mean(losses, batch.weights)
            scaled = self.scaled(loss + self.regularization() if regularized else loss)
        gradients = self.gradients(tape, scaled)
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

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "gem_margin": self.gem_margin,
            "gem_ridge": self.gem_ridge,
            "gem_solver": self.gem_solver,
            "batch_norm": self.batch_norm,
        }
