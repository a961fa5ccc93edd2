"""Private names of Keras and TensorFlow that the package cannot do without, and nowhere else.

Each function says which public way is missing. `tests/test_keras_private.py` holds what each gives,
and says what to look for where a release has taken a name away.
"""

import contextlib
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

_KEYED = (
    "_trainable_variables_indices", "_exclude_from_weight_decay",
    "_exclude_from_weight_decay_pattern", "_exclude_from_weight_decay_cache",
)  # fmt: skip
"""Attributes of an optimizer that name variables of TensorFlow, or change with these."""
_SUM = "_all_reduce_sum_gradients"
"""The method of an optimizer that sums over replicas, from pairs of gradient and variable."""
_PARTS = "_true_graph", "_false_graph", "_cond_graph", "_body_graph"
"""Where an operation of TensorFlow holds the graphs of a condition or a loop."""

# ---- layers ------------------------------------------------------------------------------------


def layers_of(layer: keras.layers.Layer, include_self: bool = False) -> list[keras.layers.Layer]:
    """The layers within a layer, however deep, with itself first where asked for.

    `keras.Model.layers` has those of one model alone, and other layers have no public list.
    """
    return list(layer._flatten_layers(include_self=include_self))


@contextlib.contextmanager
def before_normalization(tell: Callable[[int], None]) -> Iterator[None]:
    """A context in which a layer Normalization tells over how many entries it spreads a given mean.

    Keras computes it when the layer is built, and has no hook before that: its `build` is replaced
    at the first use, and tells in the context alone, which is that of one thread.

    Args:
        tell: Called with their number before they are made; what it raises goes on to the caller.
    """
    _count_normalization()
    token = _TOLD.set(tell)
    try:
        yield
    finally:
        _TOLD.reset(token)


_TOLD: ContextVar[Callable[[int], None] | None] = ContextVar("told", default=None)


@functools.cache
def _count_normalization() -> None:
    build = keras.layers.Normalization.build

    @functools.wraps(build)
    def telling(layer: Any, input_shape: Any) -> None:
        tell = _TOLD.get()
        if tell is not None and layer.input_mean is not None and input_shape is not None:
            tell(math.prod(input_shape[axis] or 1 for axis in layer.axis))
        build(layer, input_shape)

    keras.layers.Normalization.build = telling


def own_trainable(layer: keras.layers.Layer) -> list[keras.Variable]:
    """A layer's own variables that may be trained, whether they are frozen or not.

    `trainable_variables` leaves out those that are frozen, and has those of layers within.
    """
    return list(layer._trainable_variables)


def own_others(layer: keras.layers.Layer) -> list[keras.Variable]:
    """A layer's own variables that are never trained; `non_trainable_variables` has others too."""
    return list(layer._non_trainable_variables)


def count_own_variables(layer: keras.layers.Layer) -> int:
    """How many variables `save_own_variables` of a layer saves; `weights` has those within too."""
    return len(layer._trainable_variables) + len(layer._non_trainable_variables)


def base_kernel(layer: keras.layers.Layer) -> keras.Variable:
    """The kernel of a layer with adapters, without them: its `kernel` is the sum of both."""
    kernel: keras.Variable = layer._kernel
    return kernel


# ---- symbolic tensors and graphs of layers -----------------------------------------------------


def maker(tensor: Any) -> Any:
    """The layer or operation that makes a symbolic tensor; Keras shows it nowhere."""
    return tensor._keras_history.operation


def made_from(tensor: Any) -> list[Any]:
    """The symbolic tensors that its maker was called on; `layer.input` has those of one call."""
    operation, node, _ = tensor._keras_history
    return list(operation._inbound_nodes[node].input_tensors)


def mask_of(tensor: Any) -> Any:
    """The mask that a layer has given to its output, or None; masks travel to layers alone."""
    return getattr(tensor, "_keras_mask", None)


def calls_of(network: keras.Model) -> list[Any]:
    """The calls that a Functional or Sequential model is made of, in order.

    Each has `operation`, `arguments`, `input_tensors` and `output_tensors`. `get_config` names them
    in words alone.
    """
    graph = getattr(network, "_functional", network)  # that of a Sequential
    by_depth = graph._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def calls_on(layer: keras.layers.Layer) -> list[Any]:
    """The calls that take an output of a layer, in whatever model."""
    return list(layer._outbound_nodes)


def inputs_of_calls(layer: keras.layers.Layer) -> list[list[Any]]:
    """The symbolic tensors that a layer was called on, by call; `layer.input` has those of one."""
    return [list(node.input_tensors) for node in layer._inbound_nodes]


def is_called(network: keras.Model) -> bool:
    """Whether a model is part of another one."""
    return bool(network._inbound_nodes)


def set_shape(tensor: Any, shape: Any) -> None:
    """Give a symbolic tensor another shape; Keras infers shapes when a layer is called, once."""
    tensor._shape = shape


# ---- variables ---------------------------------------------------------------------------------


def give_new_shape(variable: keras.Variable, value: np.ndarray) -> None:
    """Let a variable be a new one of TensorFlow, with a value of another shape.

    Keras fixes the shape of a variable when it initialises it.
    """
    variable._initialize(value)
    variable._shape = value.shape


def held(variables: Iterable[keras.Variable]) -> list[tuple[keras.Variable, Any, Any]]:
    """Variables with those of TensorFlow that they are, for `put_back`."""
    return [(variable, variable._value, variable._shape) for variable in variables]


def put_back(variables: Iterable[tuple[keras.Variable, Any, Any]]) -> None:
    """Let variables be those of TensorFlow that they were, which graphs know."""
    for variable, value, shape in variables:
        variable._value, variable._shape = value, shape


# ---- optimizers --------------------------------------------------------------------------------


def trained_by(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The variables that an optimizer is built for; `variables` has its slots alone."""
    return list(optimizer._trainable_variables)


def averages_of(
    optimizer: keras.optimizers.Optimizer,
) -> list[tuple[keras.Variable, keras.Variable]]:
    """Each weight of an optimizer that is built with `use_ema` and its average, none of others.

    `variables` has the averages among the other slots.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if not inner.use_ema:
        return []
    return list(zip(trained_by(inner), inner._model_variables_moving_average, strict=True))


def decays(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> bool:
    """Whether weight decay takes part in a variable's updates; there is a public way to set it."""
    # A step compares names with those of TensorFlow's variables.
    return bool(optimizer._use_weight_decay(variable.value))


def key_of(optimizer: keras.optimizers.Optimizer, variable: keras.Variable) -> Any:
    """The name of a variable that an optimizer keeps, which is of TensorFlow's variable."""
    return optimizer._var_key(variable)


def rename_keys(optimizer: keras.optimizers.Optimizer, names: Mapping[Any, Any]) -> None:
    """Let an optimizer know variables by other names; it can be built but once."""
    indices = optimizer._trainable_variables_indices
    optimizer._trainable_variables_indices = {names.get(k, k): i for k, i in indices.items()}


def keys_of(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """What an optimizer keeps of the names of variables, for `put_keys_back`."""
    return {name: vars(optimizer)[name] for name in _KEYED if name in vars(optimizer)}


def put_keys_back(optimizer: keras.optimizers.Optimizer, keys: Mapping[str, Any]) -> None:
    """Let an optimizer keep the names that it kept."""
    for name in _KEYED:
        vars(optimizer).pop(name, None)
    vars(optimizer).update(keys)


@contextlib.contextmanager
def without_sum(optimizer: keras.optimizers.Optimizer) -> Iterator[None]:
    """A context in which an optimizer applies the gradients that it receives on each replica.

    Keras sums them over the replicas, after it has clipped those of each, and has no way to be told
    that all replicas have the whole gradient: parts of it would be clipped at a bound that is too
    large, and a variable that its gradient overwrites would get the part of one replica.
    """
    assert hasattr(optimizer, _SUM), "Keras sums gradients over replicas elsewhere"
    object.__setattr__(optimizer, _SUM, list)
    try:
        yield
    finally:
        # Replicas are threads, which go through it together: the first one to end takes it away
        # when the others are past it.
        vars(optimizer).pop(_SUM, None)


# ---- models and metrics ------------------------------------------------------------------------


def loss_mean(model: keras.Model) -> keras.metrics.Mean:
    """The metric "loss" of a compiled model; `metrics` has it, and no name for it."""
    return model._loss_tracker


def epoch_of_backup(model: keras.Model) -> int | None:
    """The epoch that `BackupAndRestore` lets a fit begin with, or None."""
    epoch: int | None = model._initial_epoch
    return epoch


def forget_epoch_of_backup(model: keras.Model) -> None:
    """Forget it: Keras keeps that of one fit for every later one."""
    model._initial_epoch = None


def call_steps_of_validation(model: keras.Model, steps: int) -> None:
    """Let a call of the graph take so many steps of the validation in a `fit`.

    Keras chooses them once, when the validation data are first iterated over, and runs past a
    `validation_steps` that they do not divide.
    """
    model._eval_epoch_iterator.steps_per_execution = steps


def is_validation(arguments: Mapping[str, Any]) -> bool:
    """Whether `evaluate` with these arguments is called by a `fit`, which tells it nothing else."""
    return bool(arguments.get("_use_cached_eval_dataset"))


class _Adapter(DataAdapter):
    """An adapter of data for one device that knows how many batches there are.

    Keras takes one of another's making in place of data, and has no public name for the class.
    """

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def get_tf_dataset(self) -> Any:
        return self._batches

    @property
    def num_batches(self) -> int:
        count: int = self._batches.count
        return count


def adapter_of(batches: Any) -> Any:
    """What Keras's `fit`, `evaluate` and `predict` take as data, to iterate over it.

    Of arrays they build graphs of tf.data in every call.

    Args:
        batches: What is iterated over, with `count`, how many there are.
    """
    return _Adapter(batches)


@contextlib.contextmanager
def without_compile_warning() -> Iterator[None]:
    """A context in which Keras does not tell that it did not call a model's own `compile`.

    It tells so of a network of KerasHub within another model, which alone is compiled.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`compile\(\)` was not called", UserWarning)
        yield


def function_of_steps(model: keras.Model, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What Keras calls with an iterator: it takes the steps of one call.

    `make_train_function` makes one of `train_step` alone.

    Args:
        model: Compiled.
        step: From the data of a batch to logs.
    """
    function: Callable[[Any], Any] = model._make_function(step)
    return without_tracing_warning(function)


def direction(metric: keras.metrics.Metric) -> str | None:
    """ "up" where more is better, "down" where less is, None where Keras does not know."""
    found: str | None = getattr(metric, "_direction", None)
    return found


def set_direction(metric: keras.metrics.Metric, direction: str | None) -> None:
    """Say whether more of a metric is better, as Keras says of its own."""
    metric._direction = direction


def function_of(metric: keras.metrics.Metric) -> Any:
    """The function whose mean a metric is, or None."""
    return getattr(metric, "_fn", None)


def arguments_of(metric: keras.metrics.Metric) -> Mapping[str, Any]:
    """The further arguments of that function."""
    found: Mapping[str, Any] = metric._fn_kwargs
    return found


def takes_logits(metric: Any) -> bool | None:
    """Whether a metric takes logits; None where it does not say it, as not every one does."""
    found: bool | None = getattr(metric, "from_logits", getattr(metric, "_from_logits", None))
    return found


# ---- graphs of TensorFlow ----------------------------------------------------------------------


def graph(function: Callable[..., Any], **arguments: Any) -> Any:
    """A graph of a function, such as a method of a learner, `without_tracing_warning`.

    Args:
        function: Of tensors.
        **arguments: Of `tf.function`.
    """
    return without_tracing_warning(tf.function(function, autograph=False, **arguments))


def without_tracing_warning(made: Any) -> Any:
    """Make the graphs of a function, and of those within it, without TensorFlow's warning of them.

    It counts the graphs of all objects of a class as one function's, so that it warns of the fifth
    model of a process.

    Args:
        made: Of `tf.function`, or a function of Keras that calls some.
    """
    if hasattr(made, "_omit_frequent_tracing_warning"):
        made._omit_frequent_tracing_warning = True
    for cell in getattr(made, "__closure__", None) or ():
        if callable(cell.cell_contents) and not isinstance(cell.cell_contents, type):
            without_tracing_warning(cell.cell_contents)
    return made


def function_in(graph: tf.Graph, name: str) -> Any:
    """The function of a graph that its operations call by a name; None where it has none."""
    return graph._get_function(name)


def add_operation(
    like: tf.Operation, inputs: list[Any], dtypes: list[Any], attributes: Any, name: Any = None
) -> tf.Operation:
    """Add an operation of the kind of another one to the graph that is being made.

    `tf.raw_ops` names its arguments otherwise for each kind, and takes no attribute of its own.

    Args:
        like: The other one.
        inputs: Tensors of the graph.
        dtypes: Of the outputs.
        attributes: By name, as `node_def.attr` has them.
        name: The operation's name; None for one that TensorFlow makes.
    """
    graph = tf.compat.v1.get_default_graph()
    made: tf.Operation = graph._create_op_internal(
        like.type, inputs, dtypes, name=name, attrs=attributes, op_def=like.op_def
    )
    return made


def dismantle(graphs: list[Any]) -> None:
    """Take graphs apart, with those of conditions and loops in them; the list is empty then.

    TensorFlow keeps the graph of a function within another one for ever: its operations refer to it
    where Python's garbage collector does not look.
    """
    with contextlib.suppress(ImportError):
        from tensorflow.python.framework.func_graph import dismantle_func_graph

        while graphs:
            graph = graphs.pop()
            graphs.extend(_parts_of(graph))
            dismantle_func_graph(graph)


def _parts_of(graph: tf.Graph) -> Iterator[Any]:
    for operation in graph.get_operations():
        for name in _PARTS:
            part = getattr(operation, name, None)
            if part is not None:
                yield part
