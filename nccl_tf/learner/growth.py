"""A head that grows by classes, and everything that a learner keeps for each weight or class."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import keras
import numpy as np

from nccl_tf import keras_private as private
from nccl_tf.errors import UserError
from nccl_tf.learner import checks, variable_flags
from nccl_tf.learner.heads import HeadMasks
from nccl_tf.networks.inspection import find_head
from nccl_tf.variables import resize

Shape: TypeAlias = Sequence[int] | Callable[[], Sequence[int]] | Any
"""A fixed shape, a keras.Variable that has it, or a function that returns it for the head."""


def shape_of(shape: Shape) -> tuple[int, ...]:
    """The current shape."""
    if isinstance(shape, keras.Variable):
        return tuple(shape.shape)
    return tuple(shape() if callable(shape) else shape)


class Growing:
    """The variables of a learner that have a side for each class, or the shape of a weight.

    Args:
        network: The learner's, whose own shapes are those that it was made or has grown with.
    """

    def __init__(self, network: keras.Model) -> None:
        self._rules: list[tuple[keras.Variable, Shape, Any]] = []
        self._shapes = [(v, tuple(v.shape)) for v in network.variables]

    def add(self, variable: keras.Variable, shape: Shape, fill: Any) -> None:
        """Let a variable grow.

        Args:
            variable: Of the shape that `shape` stands for.
            shape: Stands for another one when the head has grown.
            fill: A number for new entries, or a variable of the new shape that holds them.
        """
        self._rules.append((variable, shape, fill))

    def grow(self) -> None:
        """Give every variable its new shape; the values that it holds stay."""
        for variable, shape, fill in self._rules:
            if variable.shape != shape_of(shape):
                is_variable = isinstance(fill, keras.Variable)
                resize(variable, shape_of(shape), fill.numpy() if is_variable else fill)
        self._shapes = [(variable, tuple(variable.shape)) for variable, _ in self._shapes]

    def is_behind(self) -> bool:
        """Whether the network has other shapes, because another learner has let it grow."""
        return any(tuple(variable.shape) != shape for variable, shape in self._shapes)


class HeadGrowth:
    """More logits for the head of a learner, compiled or not.

    Args:
        learner: The learner.
        head: Name of its last layer; None where the network shows it.
        growing: What grows with the head.
        trained: What `checks.trained` gave when it was compiled; None before.
    """

    def __init__(self, learner: Any, head: str | None, growing: Growing, trained: Any):
        self._learner, self._head = learner, head
        self._growing, self._trained = growing, trained

    def add_classes(self, count: int) -> None:
        """Give a learner's head more logits; `Learner.add_classes` is the public form.

        Args:
            count: Logits to add.

        Raises:
            UserError: As for `Learner.add_classes`.
        """
        head = self._checked_head(count)
        if _is_part_of_another(self._learner.network):
            self._learner.warn_once(
                "around",
                "the network that grows is part of another model, whose predict, evaluate and "
                f"shapes stay those of {self._learner.num_classes} classes: build that model again",
            )
        with self._whole_or_not_at_all(head):
            self._grow(head, count)
        self._learner.execution.discard_graphs()
        self._learner.test_function = self._learner.predict_function = None
        self._learner.make_graphs()

    def _grow(self, head: keras.layers.Dense, count: int) -> None:
        before = self._learner.num_classes
        optimizer = getattr(self._learner, "optimizer", None)
        weights = [head.kernel, *([head.bias] if head.use_bias else [])]
        keys = [optimizer and private.key_of(optimizer, weight) for weight in weights]
        trained = self._learner.trainable_variables
        excluded = [] if optimizer is None else variable_flags.excluded(optimizer, trained)
        _grow_head(self._learner.network, head, count)
        if optimizer is not None:
            names = {
                key: private.key_of(optimizer, weight)
                for key, weight in zip(keys, weights, strict=True)
            }
            for each in _with_inner(optimizer):
                private.rename_keys(each, names)
            variable_flags.exclude(optimizer, excluded)
        self._set_classes(before + count)
        new = list(range(before, before + count))
        if self._learner.heads is not None:
            heads = self._learner.heads
            classes = [*heads.classes, new]
            self._learner.heads = HeadMasks(classes, self._learner.num_classes, heads.mask)
        self._growing.grow()
        for memory in self._learner.memories():
            if memory is self._learner.memory:
                waits = not memory.is_allocated  # its columns come with its shapes
                extras = {} if waits else self._learner._extras(memory, memory.specs)
                memory.add_classes(new, extras)
            if _are_rows(memory, self._learner.network, before):
                memory.grow_labels(self._learner.num_classes)
        if optimizer is not None:
            _grow_optimizer(optimizer)

    @contextmanager
    def _whole_or_not_at_all(self, head: keras.layers.Dense) -> Iterator[None]:
        """Put everything back that the body has changed, if it raises, as where no room is left.

        The variables of TensorFlow are those of before, which graphs and the optimizer know.
        """
        optimizer = getattr(self._learner, "optimizer", None)
        optimizers = [] if optimizer is None else _with_inner(optimizer)
        memories = self._learner.memories()
        variables = [
            *self._learner.variables,
            *(v for each in (*optimizers, *memories) for v in each.variables),
        ]
        held = private.held(variables)
        objects = [self._growing, *(part for memory in memories for part in memory.state_of_form())]
        attributes = [(each, _copied(vars(each))) for each in objects]
        keys = [(each, private.keys_of(each)) for each in optimizers]
        units, classes, heads = head.units, self._learner.num_classes, self._learner.heads
        try:
            yield
        except BaseException:
            private.put_back(held)
            for each, values in attributes:
                vars(each).update(values)
            for each, values in keys:
                private.put_keys_back(each, values)
            head.units, self._learner.heads = units, heads
            self._set_classes(classes)
            _infer_shapes(self._learner.network, head)
            raise

    def _set_classes(self, count: int) -> None:
        """Let the learner have so many classes, an attribute that nobody else sets."""
        object.__setattr__(self._learner, "num_classes", count)

    def _checked_head(self, count: int) -> keras.layers.Dense:
        name = type(self._learner).__name__
        if not isinstance(count, (int, np.integer)) or count < 1:
            raise UserError(f"received {count!r} classes to add; expected a whole number from 1")
        if reason := self._learner.why_not("add_classes"):
            raise UserError(f"{name} cannot add classes: {reason}")
        if self._learner.example_loss.is_one_unit:
            raise UserError(
                f"{name} cannot add classes to a network with one output, which says class 1 of "
                "two: build it with an output for each class, and compile without a loss"
            )
        if self._learner.compiled:
            built_for = checks.trained(private.trained_by(self._learner.optimizer))
            checks.check_built_for(built_for, self._trained)
        self._learner.devices.check_grows()
        head = find_head(self._learner.network, self._learner.num_classes, self._head)
        if head.lora_enabled:
            raise UserError(
                f"received a network whose last layer {head.name!r} has LoRA enabled, with "
                f"adapters of {self._learner.num_classes} outputs: leave LoRA out of the last layer"
            )
        if mode := getattr(head, "quantization_mode", None):
            raise UserError(
                f"received a network whose last layer {head.name!r} is quantized to {mode}, which "
                "cannot grow: leave the last layer out of quantize"
            )
        return head


def _copied(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes, with copies of those that are changed in place."""
    return {name: dict(v) if type(v) is dict else v for name, v in attributes.items()}


def _with_inner(optimizer: Any) -> list[Any]:
    """An optimizer, and that within a loss scale."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return [optimizer] if inner is None else [optimizer, inner]


def _grow_head(network: keras.Model, head: keras.layers.Dense, count: int) -> None:
    """Let the head grow.

    Raises:
        UserError: The network's outputs do not grow with it.
    """
    parts = [(head.kernel, head.kernel_initializer)]
    if head.use_bias:
        parts.append((head.bias, head.bias_initializer))
    head.units += count
    for variable, initializer in parts:
        shape = (*variable.shape[:-1], head.units)
        resize(variable, shape, np.asarray(initializer(shape, dtype=variable.dtype)))
    try:
        _infer_shapes(network, head)
        grows = network.outputs[0].shape[-1] == head.units
    except ValueError:  # a layer behind has weights for the outputs of before
        grows = False
    if not grows:
        raise UserError(
            f"received the layer {head.name!r} to grow, but the network's outputs do not grow with "
            "it: name the dense layer that makes the logits by head="
        )
    # What Keras has compiled for the network itself holds the variables of before.
    network.train_function = network.test_function = network.predict_function = None


def _infer_shapes(network: keras.Model, head: keras.layers.Dense) -> None:
    """Infer the shapes behind the head again; Keras has no public way to do so."""
    changed: set[int] = set()
    for node in private.calls_of(network):
        layer, inner = node.operation, []
        if isinstance(layer, keras.layers.Layer):
            inner = private.layers_of(layer, include_self=True)
        holds = any(each is head for each in inner)
        if not holds and changed.isdisjoint(map(id, node.input_tensors)):
            continue
        if holds and getattr(layer, "outputs", None):
            _infer_shapes(layer, head)
        spec = layer.compute_output_spec(*node.arguments.args, **node.arguments.kwargs)
        for tensor, new in zip(node.output_tensors, keras.tree.flatten(spec), strict=True):
            private.set_shape(tensor, new.shape)
            changed.add(id(tensor))


def _are_rows(memory: Any, network: keras.Model, classes: int) -> bool:
    """Whether the labels in a memory have an entry for each class, as the network's outputs."""
    if not memory.is_allocated:
        return False
    shape = memory.labels.shape
    return len(shape) == len(network.output_shape) and shape[-1] == classes


def _is_part_of_another(network: keras.Model) -> bool:
    """Whether the network or its output is part of another model."""
    own = set(map(id, network.layers))
    ends = {id(t) for t in network.outputs}
    others = any(
        id(node.operation) not in own
        for layer in network.layers
        for node in private.calls_on(layer)
        if ends & {id(t) for t in node.input_tensors}
    )
    return private.is_called(network) or others


def _grow_optimizer(optimizer: Any) -> None:
    """Grow the slots with the values of a new optimizer, mostly zero; averages with the weights."""
    fresh = type(optimizer).from_config(optimizer.get_config())
    fresh.build(private.trained_by(optimizer))
    for weight, average in private.averages_of(fresh):
        average.assign(weight.value)
    for variable, grown in zip(optimizer.variables, fresh.variables, strict=True):
        if variable.shape != grown.shape:
            resize(variable, grown.shape, grown.numpy())
