"""InfLoRA (Liang and Li, CVPR 2024): adapters in directions that old inputs do not have."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError, checked_at_least
from nccl_tf.keras_private import base_kernel, layers_of
from nccl_tf.learner.learner import Learner
from nccl_tf.learner.options.new_optimizer import NewOptimizer
from nccl_tf.learner.options.option import Option
from nccl_tf.methods.rows import inflora as rows
from nccl_tf.networks.inspection import find_head

_KINDS = (keras.layers.Dense, keras.layers.EinsumDense)
_OF_ATTENTION = ("key", "value")
_DRAWS_KEY = 13


@keras.saving.register_keras_serializable(package="nccl_tf")
class InfLoRA(Learner):
    r"""Adapters (LoRA) whose update leaves the outputs of layers on old inputs as they are.

    A dense layer with adapters computes $x (W + c A B)$. When a task begins, a pass over its
    examples measures $H = \sum x x^T / n$ of the layer's inputs, and the columns of $A$ become the
    $r$ leading left singular vectors of $(I - P) H$, divided by $\sqrt 3$, where $P$ projects onto
    the inputs of the tasks so far. $A$ is fixed, $B$ begins at zero, and $B$ and the head learn by
    the softmax over the classes of the task. So an input within $P$ has the same outputs after the
    task as before. When it ends, another pass measures $H$ anew, $P$ grows by leading directions of
    $(I - P) H$ until it explains the share $\epsilon + (1 - \epsilon) t/T$ of $\lVert H \rVert^2$
    in task $t$ of $T$, counted from 0, and $c A B$ is added to $W$: there is one pair of matrices
    for all tasks.

    Every weight is frozen but $B$ of the adapters and the head, biases of the adapted layers too.
    Adapters are those that the network has, by `enable_lora` of `Dense` and `EinsumDense` layers;
    without any, layers named "key" and "value" get some, as in the paper, or else every dense layer
    but the head. Of an `EinsumDense` with several heads all of them share the directions. The
    authors keep $P$ by its basis, or that of its complement; here it is a matrix of 8 width² bytes
    for each layer. For the first task their share stops one direction below.

    The optimizer begins every task as a new one.

    Args:
        network: Any Keras model from inputs to one logit per class that ends in a dense layer.
        num_tasks: $T$; None for a share that stays $\epsilon$.
        rank: $r$ of adapters that the network does not have yet.
        epsilon: $\epsilon$.
        stream_mask: As for `Learner`.
        **kwargs: As for `Learner`.

    Raises:
        UserError: No dense layer makes the outputs, no layer can have adapters, those of a layer
            are of a kind whose inputs span no space, such as an embedding, a layer is quantized, or
            a number is out of range.

    Example:
        >>> import nccl_tf
        >>> learner = nccl_tf.InfLoRA(nccl_tf.networks.mlp((28, 28, 1), 10), num_tasks=5, rank=4)
    """

    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        "export_learner": "passes a task's examples once more, which no device keeps",
        "refreezing": "freezes all but its adapters and the head",
        "heads": "masks the classes of other tasks, as a head does already",
        **rows.INFLORA.refuses,
    }

    def __init__(
        self,
        network: keras.Model,
        *,
        num_tasks: int | None = None,
        rank: int = 10,
        epsilon: float = 0.95,
        stream_mask: str = "task",
        **kwargs: Any,
    ):
        adapted = adapt(network, rows.RANK.check(rank))
        super().__init__(network, stream_mask=stream_mask, **kwargs)
        self.num_tasks = None if num_tasks is None else checked_at_least("num_tasks", num_tasks, 1)
        self.rank = rank
        self.epsilon = epsilon
        self.add_option(NewOptimizer())
        self.add_option(
            FreeDirections(
                self.network,
                adapted,
                self.state,
                self.progress.tasks_ended,
                lambda task: self._share(task),
                self.seed,
            )
        )

    def _share(self, task: int) -> float:
        """The share of inputs that is protected after a task, counted from 0."""
        if self.num_tasks is None:
            return self.epsilon
        return min(1.0, self.epsilon + (1 - self.epsilon) * task / self.num_tasks)


class FreeDirections(Option):
    """Gives adapters their directions when a task begins, and merges them when it ends.

    Args:
        network: That of the learner.
        layers: Those with adapters.
        state: Makes variables that are saved with the learner.
        tasks_ended: The learner's count.
        share: From a task's number to the share of inputs that is protected after it.
        seed: Of the directions of a task that no pass has measured.
    """

    task_pass = ("begin", "end")
    on_replicas = False

    def __init__(
        self,
        network: keras.Model,
        layers: Sequence[keras.layers.Layer],
        state: Callable[..., keras.Variable],
        tasks_ended: keras.Variable,
        share: Callable[[int], float],
        seed: int,
    ):
        self._network, self._layers, self._share = network, list(layers), share
        self._tasks_ended, self._seed = tasks_ended, seed
        self.protected = [
            state(f"protected_{i}", (width, width), "float64")
            for i, width in enumerate(map(input_width, layers))
        ]

    def task_sums(self, rows: Batch, when: str) -> Any:
        """Of each layer the sum of x x^T, float64 [width, width], and the number of its inputs."""
        with inputs_of(self._layers) as found:
            self._network(rows.inputs, training=False)
        is_counted, sums = rows.weights > 0, []
        for layer, each in zip(self._layers, found, strict=True):
            width = input_width(layer)
            product, count = tf.zeros([width, width], tf.float64), tf.zeros([], tf.float64)
            for x in each:
                flat = tf.reshape(tf.cast(x, tf.float64), [tf.shape(x)[0], -1, width])
                flat = tf.boolean_mask(flat, is_counted)
                flat = tf.reshape(flat, [-1, width])
                product += tf.matmul(flat, flat, transpose_a=True)
                count += tf.cast(tf.shape(flat)[0], tf.float64)
            sums.append((product, count))
        return sums

    def on_task_pass(self, when: str, sums: Any) -> None:
        for layer, protected, (product, count) in zip(
            self._layers, self.protected, sums or [], strict=bool(sums)
        ):
            second = product / max(float(count), 1.0)
            if when == "begin":
                set_directions(layer, directions(protected.numpy(), second, layer.lora_rank))
            else:
                share = self._share(int(self._tasks_ended.numpy()))
                protected.assign(grown(protected.numpy(), second, share))

    def on_task_begin(self, task_id: int) -> None:
        """Draw directions, for a task whose examples come one batch at a time, without a pass."""
        draws = np.random.default_rng([self._seed, _DRAWS_KEY, task_id])
        for layer, protected in zip(self._layers, self.protected, strict=True):
            noise = draws.standard_normal(protected.shape)
            drawn = directions(protected.numpy(), noise @ noise.T, layer.lora_rank)
            set_directions(layer, drawn)
            layer.lora_kernel_b.assign(tf.zeros_like(layer.lora_kernel_b.value))

    def on_task_end(self, task_id: int) -> None:
        for layer in self._layers:
            base_kernel(layer).assign(layer.kernel)
            layer.lora_kernel_b.assign(tf.zeros_like(layer.lora_kernel_b.value))


# ---- directions ----------------------------------------------------------------------------------


def directions(protected: np.ndarray, second: np.ndarray, rank: int) -> np.ndarray:
    """Orthonormal directions [width, rank] of inputs outside of a protected space.

    Args:
        protected: The projection P onto the space [width, width].
        second: Of the inputs, H [width, width].
        rank: How many; where the rest of the inputs has fewer, the others are 0.
    """
    free = second - protected @ second
    vectors, values, _ = np.linalg.svd(free)
    found = vectors[:, :rank]
    found = found - protected @ found
    small = len(protected) * np.finfo(float).eps * max(float(np.linalg.norm(second)), 1e-300)
    norms = np.linalg.norm(found, axis=0)
    kept = (values[:rank] > small) & (norms > 0.5)
    chosen = np.where(kept, found / np.where(kept, norms, 1), 0.0)
    return np.pad(chosen, ((0, 0), (0, rank - chosen.shape[1])))


def grown(protected: np.ndarray, second: np.ndarray, share: float) -> np.ndarray:
    """A projection that explains a share of the inputs' second moment, by its squared norm.

    Args:
        protected: The projection so far [width, width].
        second: H [width, width].
        share: From 0 to 1.
    """
    total = np.sum(second**2)
    vectors, values, _ = np.linalg.svd(second - protected @ second)
    explained = total - np.sum(values**2)
    missing = share * total - explained - 1e-12 * total
    if total <= 0 or missing <= 0:
        return protected
    count = int(np.searchsorted(np.cumsum(values**2), missing)) + 1
    new = vectors[:, :count]
    new, _ = np.linalg.qr(new - protected @ new)
    return protected + new @ new.T


# ---- layers --------------------------------------------------------------------------------------


def adapt(network: keras.Model, rank: int) -> list[keras.layers.Layer]:
    """Enable adapters where a network has none, freeze what does not learn, and return the layers.

    Raises:
        UserError: As for `InfLoRA`.
    """
    head = _head_of(network)
    layers = [x for x in layers_of(network) if x is not head]
    adapted = [layer for layer in layers if getattr(layer, "lora_enabled", False)]
    if not adapted:
        dense = [layer for layer in layers if isinstance(layer, _KINDS)]
        adapted = [layer for layer in dense if layer.name in _OF_ATTENTION] or dense
    if not adapted:
        raise UserError(
            "received a network without a dense layer before its head, but InfLoRA adapts such: "
            "call enable_lora(rank) of Dense or EinsumDense layers, or take another method"
        )
    for layer in adapted:
        _check_adapts(layer)
    for layer in adapted:
        if not layer.lora_enabled:
            layer.trainable = True
            most = min(rank, input_width(layer))
            layer.enable_lora(most, lora_alpha=float(most))
    learns = {id(v) for v in head.trainable_variables} | {id(x.lora_kernel_b) for x in adapted}
    for variable in network.trainable_variables:
        if id(variable) not in learns:
            variable.trainable = False
    return adapted


def _head_of(network: keras.Model) -> keras.layers.Dense:
    """The dense layer that makes a network's outputs.

    Raises:
        UserError: There is none, as in a language model whose outputs are its embedding again.
    """
    try:  # Keras knows no shape of the outputs of a subclass of Model.
        return find_head(network, int(network.output_shape[-1]))
    except (UserError, AttributeError) as error:
        raise UserError(
            f"received {type(network).__name__} {network.name!r}, of which no dense layer is known "
            "to make the outputs, but InfLoRA lets its adapters and such a head learn: end the "
            "network in keras.layers.Dense, as classifiers of KerasHub do"
        ) from error


def _check_adapts(layer: keras.layers.Layer) -> None:
    """Check that adapters of a layer have directions of its inputs.

    Raises:
        UserError: It is of another kind, or quantized.
    """
    name = f"the adapters of the layer {layer.name!r}"
    if not isinstance(layer, _KINDS):
        raise UserError(
            f"received {name}, a {type(layer).__name__}, but InfLoRA takes those of Dense and "
            "EinsumDense, whose inputs are vectors: enable none there"
        )
    if getattr(layer, "quantization_mode", None):
        raise UserError(
            f"received {name}, which is quantized to {layer.quantization_mode}, but InfLoRA adds "
            "adapters to the kernel when a task ends: take a layer in floats"
        )
    if isinstance(layer, keras.layers.EinsumDense) and not contracted(layer):
        raise UserError(
            f"received {name}, an EinsumDense of {layer.equation!r}, but InfLoRA takes those whose "
            "kernel begins with the last axes of the inputs: enable none there"
        )


def contracted(layer: Any) -> int:
    """How many axes of its kernel a layer sums over, the first ones; 0 where it is not so."""
    if isinstance(layer, keras.layers.Dense):
        return 1
    inputs, _, rest = layer.equation.replace(" ", "").partition(",")
    kernel, _, outputs = rest.partition("->")
    summed = [axis for axis in kernel if axis in inputs and axis not in outputs]
    axes = "".join(summed)
    return len(axes) if axes and kernel.startswith(axes) and inputs.endswith(axes) else 0


def input_width(layer: Any) -> int:
    """The numbers of an input of a layer that its kernel sums over."""
    return math.prod(base_kernel(layer).shape[: contracted(layer)])


def set_directions(layer: Any, found: np.ndarray) -> None:
    """Let the first matrix of a layer's adapters have the directions [width, rank], over √3."""
    shape, axes = layer.lora_kernel_a.shape, contracted(layer)
    inner = (1,) * (len(shape) - axes - 1)
    rows_ = (found / math.sqrt(3)).reshape(*shape[:axes], *inner, shape[-1])
    layer.lora_kernel_a.assign(np.broadcast_to(rows_, shape))


@contextlib.contextmanager
def inputs_of(layers: Sequence[keras.layers.Layer]) -> Iterator[list[list[tf.Tensor]]]:
    """The inputs of layers within a network that the body calls, a list for each layer."""
    found: list[list[tf.Tensor]] = [[] for _ in layers]

    def tapped(call: Callable[..., Any], seen: list[tf.Tensor]) -> Callable[..., Any]:
        def tap(inputs: tf.Tensor, *args: Any, **kwargs: Any) -> Any:
            seen.append(inputs)
            return call(inputs, *args, **kwargs)

        return tap

    before = [vars(layer).get("call") for layer in layers]
    for layer, seen in zip(layers, found, strict=True):
        object.__setattr__(layer, "call", tapped(layer.call, seen))
    try:
        yield found
    finally:
        for layer, own in zip(layers, before, strict=True):
            if own is None:
                object.__delattr__(layer, "call")
            else:
                object.__setattr__(layer, "call", own)
