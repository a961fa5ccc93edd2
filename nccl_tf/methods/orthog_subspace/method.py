"""ORTHOG-SUBSPACE (Chaudhry et al., NeurIPS 2020, "Continual learning in low-rank subspaces")."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner import serving
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.step import Step
from nccl_tf.memories.ring import RingMemory
from nccl_tf.methods.orthog_subspace import stiefel
from nccl_tf.methods.rows import orthog_subspace as rows
from nccl_tf.networks.inspection import FeaturesAndHead
from nccl_tf.rng import seeded, uniform_below

RENEWAL = 100
"""Steps after which rounding is taken out of the orthonormal kernels."""


@keras.saving.register_keras_serializable(package="nccl_tf")
class OrthogSubspace(Learner):
    r"""Learns each task in a subspace of the features that is orthogonal to the other tasks'.

    Of the d features that enter the last layer, task t keeps the coordinates tr to (t+1)r - 1, with
    rank r = floor(d / number of tasks); the others are zero. (The released code projects on columns
    of the identity. In the MLP it does so before the last hidden ReLU and in the ResNet before one
    more ReLU; a coordinate mask commutes with ReLU.) The task of an example picks its coordinates
    in training and at test, with a single head too; inputs without tasks are taken for examples of
    the latest task.

    Without a memory a step is plain SGD on the stream.

    With a memory, a step of task k (from 1) replays all stored examples of one past task, drawn
    uniformly, and takes $G = (f + g)/k$, the sum of both mean gradients. Kernels $W$ other than the
    last layer's, as matrices of a column for each unit, are orthonormalised at the beginning and
    move on the Stiefel manifold (`stiefel.step`) if they have at least as many rows as columns; all
    else takes SGD steps. The optimizer receives $(W - W^+)/\alpha$, so that `keras.optimizers.SGD`
    arrives at W+.

    Two things are not as in the released code (github.com/arslan-chaudhry/orthog_subspace,
    utils/resnet_utils.py and model/model.py). There the last layer begins orthogonal too when there
    is a memory; here it begins as in every method, so that methods are compared from the same
    weights. And there kernels of more columns than rows, those of shortcuts, take the Cayley step
    as well; it keeps W'W, which for such a kernel cannot be the identity, so that there is no
    orthogonality to keep, and here they take SGD steps.

    Args:
        network: A Functional or Sequential model from inputs to one logit per class that ends in a
            dense layer.
        memory: A ring, or None.
        num_tasks: Number of tasks to share the features among.
        cayley_iterations: Fixed-point iterations for the Cayley transform; None for its exact
            solution.
        **kwargs: As for `Learner`.

    Raises:
        UserError: There are more tasks than features, the network does not end in a dense layer,
            or a number is out of range.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.RingMemory(5, [[0, 1], [2, 3]], (28, 28, 1))
        >>> network = nccl_tf.networks.mlp((28, 28, 1), 10)
        >>> learner = nccl_tf.OrthogSubspace(network, memory, num_tasks=2)
    """

    memory_class = RingMemory
    log_names = ("loss", "memory_loss")
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "decomposes matrices, for which LiteRT has no operation",
        "optimizer_state": "ends a step at orthonormal weights",
        "refreezing": "keeps state for each trainable weight",
        "no_memory": "",
        "rates": rows.ORTHOG_SUBSPACE.refuses["rates"],
    }

    def __init__(
        self,
        network: keras.Model,
        memory: RingMemory | None = None,
        *,
        num_tasks: int,
        cayley_iterations: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.num_tasks = int(num_tasks)
        self.cayley_iterations = cayley_iterations
        self._parts = FeaturesAndHead(network)
        self._projections = coordinate_projections(self._parts.width, self.num_tasks)
        self.draws = self.state("draws", (), "int64")
        self._on_manifold = [
            memory is not None
            and variable is not self._parts.head.kernel
            and stiefel.can_be_orthonormal(variable)
            for variable in network.trainable_variables
        ]
        self._orthonormalize()

    def begin_task(self, task_id: int) -> None:
        """As `Learner.begin_task`; refuses a task that has no subspace."""
        self.check_head(task_id)
        super().begin_task(task_id)

    def check_head(self, task_id: int) -> None:
        """As `Learner.check_head`; refuses a task that has no subspace."""
        if not 0 <= task_id < self.num_tasks:
            raise UserError(
                f"received task {task_id}, but the features are shared among {self.num_tasks} "
                "tasks: pass the number of all tasks as `num_tasks`"
            )
        super().check_head(task_id)

    def outputs(self, inputs: tf.Tensor, tasks: tf.Tensor | None, training: bool) -> tf.Tensor:
        features = self._parts.features(inputs, training=training)
        # Before its first task a learner is at task -1, and predicts as for task 0.
        rows = tf.maximum(self.progress.task.value[None] if tasks is None else tasks, 0)
        kept = tf.cast(tf.gather(self._projections, rows), features.dtype)
        return self._parts.head(features * kept)

    def serving_outputs(self, network: keras.Model, inputs: Any, task: Any) -> Any:
        parts, kept = FeaturesAndHead(network), np.asarray(self._projections)
        features = parts.features(inputs, training=False)
        if task is None:
            kept = keras.ops.convert_to_tensor(kept[max(int(self.progress.task.numpy()), 0)])
        else:
            kept = serving.rows_of(kept.astype("float32"), task)
        logits = parts.head(features * keras.ops.cast(kept, features.dtype))
        return self._masked_for_serving(logits, task)

    def update(self, batch: Batch) -> Step:
        if self.memory is None:
            return super().update(batch)
        past = tf.cast(self.memory.ended.value, tf.int64)
        count = tf.reduce_sum(past)
        seed = seeded(self.seed, self.draws.value.assign_add(1))
        number = uniform_below(seed, tf.maximum(count, 1)[None])[0]
        drawn = tf.argmax(tf.cumsum(past) > number)
        replay = self.memory.read_task(drawn)
        replay = replay._replace(weights=replay.weights * tf.cast(count > 0, tf.float32))
        return self.learn_and_apply(self.replay, batch, replay)

    def replay(self, batch: Batch, replay: Batch) -> Step:
        """The gradients of one step, on the manifold for the kernels that live there."""
        step = tf.cond(
            tf.reduce_any(replay.weights > 0),
            lambda: self._learn_both(batch, replay).with_all_logs(self.log_names),
            lambda: self.learn(batch).with_all_logs(self.log_names),
        )
        alpha = self.optimizer.learning_rate
        gradients = []
        for kernel, gradient, on_manifold in zip(
            self.trainable_variables, step.gradients, self._on_manifold, strict=True
        ):
            if on_manifold:
                w = tf.convert_to_tensor(kernel.value)
                moved = stiefel.step(w, gradient, alpha, self.cayley_iterations)
                gradient = tf.math.divide_no_nan(w - moved, tf.cast(alpha, w.dtype))
            gradients.append(gradient)
        return step._replace(gradients=gradients)

    def _learn_both(self, batch: Batch, replay: Batch) -> Step:
        def loss_of() -> tuple[tf.Tensor, Any]:
            memory_loss = self.stream_loss(self.forward(replay, training=True), replay)
            logits = self.forward(batch, training=True)
            loss, logs = self.training_loss(logits, batch)
            tasks = 1 + tf.math.count_nonzero(self.memory.ended.value)
            total = (memory_loss + loss + self.regularization()) / tf.cast(tasks, loss.dtype)
            return total, (logits, {**logs, "memory_loss": memory_loss})

        gradients, (logits, logs) = self.gradient(loss_of)
        return Step(gradients, logits, logs)

    def after_step(self, batch: Batch, step: Step) -> None:
        super().after_step(batch, step)
        if self.memory is not None:
            renews = (self.draws.value % RENEWAL == 0) & ~step.is_skipped
            tf.cond(renews, self._orthonormalize, lambda: None)

    def _orthonormalize(self) -> None:
        for kernel, on_manifold in zip(
            self.network.trainable_variables, self._on_manifold, strict=True
        ):
            if on_manifold:
                kernel.assign(stiefel.orthonormalized(tf.convert_to_tensor(kernel.value)))


def coordinate_projections(width: int, num_tasks: int) -> np.ndarray:
    """The diagonals of the projections $P_t$, which keep floor(width / tasks) coordinates each.

    Returns:
        bool [tasks, width]: $P_t P_t = P_t$, and $P_s P_t = 0$ for two tasks.

    Raises:
        UserError: There are more tasks than features.
    """
    rank = width // num_tasks
    if rank < 1:
        raise UserError(
            f"received {num_tasks} tasks for a network with {width} features before its last "
            "layer; each task needs one of its own: widen the layer, or take fewer tasks"
        )
    return np.arange(width)[None, :] // rank == np.arange(num_tasks)[:, None]
