"""iCaRL: incremental classifier and representation learning (Rebuffi et al., CVPR 2017)."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch, split_inputs, take_rows
from nccl_tf.errors import UserError
from nccl_tf.keras_private import graph
from nccl_tf.learner import serving
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.heads import MASKED_LOGIT, at_least_float32, select_logits
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logits
from nccl_tf.memories.exemplars import ExemplarMemory
from nccl_tf.memories.memory import Memory
from nccl_tf.memories.reservoir import ReservoirMemory
from nccl_tf.methods.rows import icarl as rows
from nccl_tf.rng import with_argument


@keras.saving.register_keras_serializable(package="nccl_tf")
class ICaRL(ReplayLearner):
    r"""Learns features by distillation, and classifies by the nearest mean of exemplars.

    Every logit $z_c$ is a class of its own, $p_c = \operatorname{sigmoid}(z_c)$. The loss of an
    example is the sum over classes of the binary cross-entropy between $p_c$ and a target: for the
    classes of ended tasks what the network put out when the last task ended, for the others the
    label (algorithm 3 of the paper, with the mean over examples and the sum over classes). A step
    takes the stream batch and a batch of exemplars together. Multi-head: labels count for the
    classes of the example's own task only, and the prediction is one of these.

    At a task's end the exemplars of its classes are herded from a uniform sample of the task, lists
    are cut to the memory's length, and the mean feature of each class is taken again. Features and
    means have unit length. A class without exemplars is never predicted, unless no class that the
    example can have has any; then the logits decide.

    Beside the memory it keeps the sample (`herding_pool` inputs) and a second set of weights.

    Args:
        network: A functional or Sequential model from inputs to one logit per class; the features
            are what its last dense layer receives.
        memory: An `ExemplarMemory`.
        herding_pool: Examples of the open task that are kept to herd from.
        batch_norm: As for `ReplayLearner`; by default the batches are normalised jointly.
        **kwargs: As for `ReplayLearner`.

    Raises:
        UserError: The network has no dense layer, or a number is out of range.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ExemplarMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.ICaRL(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    memory_class = ExemplarMemory
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "chooses its exemplars in Python when a task ends",
        "loss": "learns by the sigmoids of classes and their distillation",
        **rows.ICARL.refuses,
        "known_classes": "predicts a class by its exemplars, which it has of the stream's alone",
    }
    log_names: ClassVar[tuple[str, ...]] = ("loss", "memory_loss")

    def __init__(
        self,
        network: keras.Model,
        memory: ExemplarMemory,
        *,
        herding_pool: int = 2500,
        batch_norm: str = "joint",
        **kwargs: Any,
    ):
        super().__init__(network, memory, batch_norm=batch_norm, **kwargs)
        self.herding_pool = herding_pool
        self.pool = ReservoirMemory(
            self.herding_pool,
            memory.example_shape,
            memory.example_dtype or "uint8",
        )
        # The complement of a seed is no seed: the sample draws apart from the exemplars.
        object.__setattr__(self.pool, "seed", with_argument(~self.seed))
        both = features_and_logits(network)
        # Held by a function, for Keras would take a model for a second network to be saved.
        self._features_and_logits = lambda inputs: both(inputs, training=False)
        width = both.outputs[0].shape[1]
        dtype = feature_dtype(network)
        self.means = self.state("means", lambda: (self.num_classes, width), dtype)
        self.has_mean = self.state("has_mean", lambda: (self.num_classes,), "bool")
        self.old_classes = self.state("old_classes", lambda: (self.num_classes,), "bool")
        self.previous = WeightCopy(self.network, self.state, "previous")

    def make_graphs(self) -> None:
        super().make_graphs()
        self._unit_features = graph(self._unit_features_of)

    def memories(self) -> list[Memory]:
        return [*super().memories(), self.pool]

    def stream_losses(self, logits: Logits, batch: Batch) -> tf.Tensor:
        return self.distillation_losses(logits.raw, batch)

    def memory_losses(self, logits: Logits, replay: Batch) -> tf.Tensor:
        return self.distillation_losses(logits.raw, replay)

    def distillation_losses(self, logits: tf.Tensor, batch: Batch) -> tf.Tensor:
        """The loss of each example, [n], from unmasked logits [n, classes] of a batch."""
        logits = at_least_float32(logits)
        before = self.previous.outputs(batch.inputs)
        labels = tf.one_hot(batch.labels, self.num_classes, dtype=logits.dtype)
        old = self.old_classes.value
        targets = tf.where(old, tf.sigmoid(tf.cast(before, logits.dtype)), labels)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
        if self.heads is not None:
            losses = tf.where(old | self.heads.of(batch.tasks), losses, 0)
        return tf.reduce_sum(losses, axis=1)

    def store(self, batch: Batch, logits: Logits) -> None:
        self.pool.write(batch)

    def on_task_end(self, task_id: int) -> None:
        """Herd the exemplars of the task, and take means and old outputs of all classes again."""
        if not self.pool.is_allocated:  # Nothing of the task has come.
            return
        stored = int(self.pool.readable_count())
        inputs = tf.nest.map_structure(lambda column: column.numpy()[:stored], self.pool.inputs)
        labels = self.pool.labels.numpy()[:stored]
        exemplars = self.memory.contents()
        classes = np.unique(labels)
        length = self.memory.class_quota(len({*exemplars, *classes.tolist()}))
        for label in classes.tolist():
            of_class = take_rows(inputs, labels == label)
            chosen = herd(self._features(of_class), length)
            exemplars[label] = take_rows(of_class, chosen), task_id
        self.memory.replace_contents(exemplars)
        self.pool.seen.assign(0)
        means, has_mean = np.zeros(self.means.shape), np.zeros(self.num_classes, bool)
        for label, (of_class, _) in self.memory.contents().items():
            mean = self._features(of_class).mean(axis=0)
            means[label] = mean / max(np.linalg.norm(mean), 1e-12)
            has_mean[label] = True
        self.means.assign(means)
        self.has_mean.assign(has_mean)
        self.old_classes.assign(self.progress.seen_among(self.num_classes))
        self.previous.take()

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        """Minus the squared distances to the mean features [n, classes], -1e9 where masked."""
        if training:
            return super().call(inputs, training=True)
        inputs, tasks = split_inputs(inputs)
        features, logits = self._features_and_logits(inputs)
        features = normalized(tf.cast(features, self.means.dtype))
        candidates = self.has_mean.value[None, :]
        if self.heads is not None and tasks is not None:
            candidates &= self.heads.of(tasks)
        near = select_logits(candidates, -squared_distances(features, self.means.value))
        decided = tf.reduce_any(candidates, axis=1, keepdims=True)
        return tf.where(decided, near, tf.cast(self._masked_for_test(logits, tasks), near.dtype))

    def serving_outputs(self, network: keras.Model, inputs: Any, task: Any) -> Any:
        ops, dtype = keras.ops, self.means.dtype
        features, logits = features_and_logits(network)(inputs, training=False)
        features, means = ops.cast(features, dtype), self.means.numpy()
        lengths = ops.sqrt(ops.sum(ops.square(features), axis=1, keepdims=True))
        features = ops.divide_no_nan(features, lengths)
        squares = ops.sum(ops.square(features), axis=1, keepdims=True)
        products = ops.matmul(features, ops.convert_to_tensor(means.T))
        distances = squares - 2 * products + ops.convert_to_tensor((means**2).sum(axis=1)[None])
        outputs = ops.cast(self._masked_for_serving(logits, task), dtype)
        has_mean = self.has_mean.numpy()
        if task is None:
            near = ops.where(ops.convert_to_tensor(has_mean), -distances, MASKED_LOGIT)
            return near if has_mean.any() else outputs
        assert self.heads is not None
        table = (self.heads.table & has_mean).astype("float32")
        candidates = serving.rows_of(table, task) > 0.5
        near = ops.where(candidates, -distances, MASKED_LOGIT)
        decided = serving.rows_of(table.max(axis=1, keepdims=True), task) > 0.5
        return ops.where(decided, near, outputs)

    def _features(self, inputs: Any) -> np.ndarray:
        return in_parts(self._unit_features, inputs)

    def _unit_features_of(self, inputs: Any) -> tf.Tensor:
        features, _ = self._features_and_logits(inputs)
        return normalized(tf.cast(features, self.means.dtype))


def herd(features: np.ndarray, count: int) -> np.ndarray:
    """Choose examples whose running mean stays near the mean of all (algorithm 4 of the paper).

    p_j = argmin_x |mu - (phi(x) + sum_{i<j} phi(p_i)) / j|, without repetition.

    Args:
        features: [n, d], of unit length.
        count: Number of examples wanted.

    Returns:
        int [min(count, n)]: their indices, in the order of choice, so that a prefix is the choice
        of fewer.
    """
    mean, total = features.mean(axis=0), np.zeros_like(features[0])
    free = np.ones(len(features), bool)
    chosen = []
    for j in range(1, min(count, len(features)) + 1):
        distances = np.linalg.norm(mean - (features + total) / j, axis=1)
        best = int(np.argmin(np.where(free, distances, np.inf)))
        chosen.append(best)
        free[best] = False
        total += features[best]
    return np.array(chosen, np.int64)


def normalized(features: tf.Tensor) -> tf.Tensor:
    """Features [n, d] of unit length; those of length 0 stay 0."""
    norms = tf.norm(features, axis=1, keepdims=True)
    return tf.math.divide_no_nan(features, norms)


def squared_distances(features: tf.Tensor, means: tf.Tensor) -> tf.Tensor:
    """|phi - mu_c|^2 for features [n, d] and means [classes, d]: [n, classes]."""
    products = tf.matmul(features, means, transpose_b=True)
    squares = tf.reduce_sum(tf.square(features), axis=1)[:, None]
    return squares - 2 * products + tf.reduce_sum(tf.square(means), axis=1)[None, :]


def features_and_logits(network: keras.Model) -> keras.Model:
    """A model, on the same weights, that returns (features, logits) of inputs.

    Features are what the last `keras.layers.Dense` of the network receives.

    Raises:
        UserError: The network is not made of layers, or no dense layer is among them.
    """
    dense = [layer for layer in network.layers if isinstance(layer, keras.layers.Dense)]
    if not dense or not getattr(network, "inputs", None):
        raise UserError(
            f"received the network {network.name!r}, which has no dense layer of its own; iCaRL "
            "takes its features before the last one: pass a Sequential or functional model that "
            "ends in a keras.layers.Dense"
        )
    # Several inputs may have names, which the model has to know.
    inputs = network.input if len(network.inputs) > 1 else network.inputs
    return keras.Model(inputs, [dense[-1].input, network.outputs[0]])


def in_parts(function: Callable[[Any], Any], inputs: Any, size: int = 500) -> np.ndarray:
    """`function` of inputs [n, ...], in parts of one shape: the last one repeats its inputs.

    Args:
        function: From inputs [size, ...] to a tensor [size, ...].
        inputs: Any number of inputs; an array, or a structure of arrays.
        size: Images in a part.
    """
    results = []
    count = len(tf.nest.flatten(inputs)[0])
    for start in range(0, count, size):
        rows = np.arange(start, min(start + size, count))
        part = take_rows(inputs, np.resize(rows, size))
        results.append(function(tf.nest.map_structure(tf.constant, part))[: len(rows)])
    return np.concatenate(results)


def feature_dtype(network: keras.Model) -> str:
    """ "float64" for a network in float64, else "float32"."""
    return at_least_float32(tf.zeros((), network.outputs[0].dtype)).dtype.name
