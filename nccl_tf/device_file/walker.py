"""A traced function emitted anew, operation by operation, with those that LiteRT has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.ops import cond_v2

from nccl_tf.device_file import rows
from nccl_tf.device_file.replacements import REPLACEMENTS
from nccl_tf.device_file.unsupported import UnsupportedError
from nccl_tf.device_file.words import Words
from nccl_tf.keras_private import add_operation, function_in

_CONDITIONALS = "If", "StatelessIf"
_LOOPS = "While", "StatelessWhile"
_CALLS = "PartitionedCall", "StatefulPartitionedCall"
_PASSING = "Identity", "IdentityN", "StopGradient", "PreventGradient"
_READS = "ReadVariableOp", "ResourceGather", "VariableShape", "VarIsInitializedOp"
_ON_SHAPES = (
    "StridedSlice", "Prod", "Mul", "AddV2", "Sub", "Maximum", "Minimum", "Cast",
    "ExpandDims", "Reshape",
)  # fmt: skip
_IN_PYTHON = {"reduction_indices": "axis", "dim": "axis"}
_MOST_KNOWN = 64
_MOVES = "Reshape", "StridedSlice", "Squeeze", "ExpandDims"
_DTYPES = (tf.float32, tf.int32, tf.int64, tf.uint8, tf.int8, tf.bool, tf.resource, tf.variant)
_OF_THE_COMPILER = "_class", "_output_shapes", "_gradient_op_type"


class Handle(NamedTuple):
    """A variable that a graph reads and writes.

    Attributes:
        resource: The tensor of it in the graph that is made; None of a constant.
        shape: Its shape.
        value: What it holds, of a variable that nothing writes, and which becomes a constant.
    """

    resource: Any
    shape: tf.TensorShape
    value: Any = None


def emitted(concrete: Any, args: Sequence[tf.Tensor], constants: Mapping[int, np.ndarray]) -> Any:
    """The outputs of a concrete function for tensors, emitted into the graph that is being traced.

    Args:
        concrete: A traced function on fixed shapes.
        args: A tensor for each of its inputs, captured ones left out.
        constants: By id, the values of TensorFlow's variables that nothing writes.

    Raises:
        UnsupportedError: An operation has no replacement.
    """
    graph = concrete.graph
    variables = {id(variable.handle): variable for variable in graph.variables}
    known: dict[str, Any] = {}
    for outer, inner in graph.captures:
        variable = variables.get(id(outer))
        if variable is None:
            known[inner.name] = outer
        elif id(variable) in constants:
            known[inner.name] = Handle(None, variable.shape, constants[id(variable)])
        else:
            known[inner.name] = Handle(outer, variable.shape)
    inputs = [each for each in graph.inputs if each.name not in known]
    known |= {each.name: arg for each, arg in zip(inputs, args, strict=True)}
    outputs = _emit(graph, known, graph.outputs)
    return tf.nest.pack_sequence_as(concrete.structured_outputs, outputs, expand_composites=True)


def written(concretes: Sequence[Any]) -> set[int]:
    """The ids of the variables that functions write, but for what puts back what it has read.

    Args:
        concretes: Traced functions.
    """
    found: set[int] = set()
    for concrete in concretes:
        graph = concrete.graph
        variables = {id(variable.handle): variable for variable in graph.variables}
        known = {
            inner.name: ("handle", id(variables[id(outer)]))
            for outer, inner in graph.captures
            if id(outer) in variables
        }
        _find_writes(graph, known, found)
    return found


def _find_writes(graph: Any, known: dict[str, Any], found: set[int]) -> None:
    for op in graph.get_operations():
        ins = [known.get(each.name) for each in op.inputs]
        handles = [each for each in ins if each is not None and each[0] == "handle"]
        if op.type in _PASSING:
            known |= {o.name: i for o, i in zip(op.outputs, ins, strict=True)}
        elif op.type == "ReadVariableOp" and handles:
            known[op.outputs[0].name] = ("read", handles[0][1])
        elif op.type in _CONDITIONALS + _LOOPS + _CALLS:
            ins = ins[1:] if op.type in _CONDITIONALS else ins
            for inner in _inner_graphs(graph, op):
                _find_writes(
                    inner, {i.name: k for i, k in zip(inner.inputs, ins, strict=True)}, found
                )
        elif handles and op.type not in _READS:
            puts_back = op.type == "AssignVariableOp" and ins[1] == ("read", handles[0][1])
            if not puts_back:
                found |= {number for _, number in handles}


def _inner_graphs(graph: Any, op: Any) -> Iterator[Any]:
    if op.type in _CONDITIONALS:
        yield from cond_v2.get_func_graphs(op)
    else:
        names = ("f",) if op.type in _CALLS else ("cond", "body")
        yield from (_graph_of(graph, op.get_attr(name).name) for name in names)


def _graph_of(graph: Any, name: str) -> Any:
    function = function_in(graph, name)
    made = getattr(function, "graph", None)
    if made is not None:
        return made
    definition = getattr(function, "cached_definition", None) or function.definition
    return function_def_to_graph.function_def_to_graph(definition)


def _emit(graph: Any, known: dict[str, Any], outputs: Sequence[Any]) -> list[Any]:
    for op in graph.get_operations():
        if op.type == "Placeholder":
            continue
        ins = [known[each.name] for each in op.inputs]
        made = _outputs_of(graph, op, ins)
        known |= {before.name: after for before, after in zip(op.outputs, made, strict=True)}
    return [known[each.name] for each in outputs]


def _outputs_of(graph: Any, op: Any, ins: list[Any]) -> Sequence[Any]:
    for kind, emit in (
        (_CONDITIONALS, _conditional), (_LOOPS, _loop), (_CALLS, _call),
    ):  # fmt: skip
        if op.type in kind:
            return emit(graph, op, ins)
    if op.type in _PASSING:
        return ins
    if any(isinstance(each, Handle) for each in ins):
        return _with_variable(op, ins)
    if op.type in REPLACEMENTS:
        try:
            replaced = REPLACEMENTS[op.type](op, ins)
        except (IndexError, TypeError, ValueError) as error:
            raise UnsupportedError(op, "with sides that are not fixed") from error
        if replaced is not None:
            return replaced
    if any(isinstance(each, Words) for each in ins):
        return [_moved(op, ins)]
    known = _known(op, ins)
    return _again(op, ins) if known is None else [known]


def _known(op: Any, ins: Sequence[Any]) -> tf.Tensor | None:
    """The result of an operation on integers that the graph knows, such as sides of a shape."""
    if op.type not in _ON_SHAPES or not op.outputs[0].dtype.is_integer:
        return None
    values = list(map(tf.get_static_value, ins))
    if any(value is None or np.size(value) > _MOST_KNOWN for value in values):
        return None
    names = [_IN_PYTHON.get(arg.name, arg.name) for arg in op.op_def.input_arg]
    given = dict(zip(names, values, strict=True))
    inferred = {arg.type_attr for arg in op.op_def.input_arg}
    given |= {a.name: op.get_attr(a.name) for a in op.op_def.attr if a.name not in inferred}
    with tf.init_scope():
        value = getattr(tf.raw_ops, op.type)(**given).numpy()
    return tf.constant(value, op.outputs[0].dtype)


def _again(op: Any, ins: Sequence[Any]) -> list[Any]:
    """The operation itself, in the current graph."""
    for each in op.outputs:
        if each.dtype not in _DTYPES:
            raise UnsupportedError(op, f"of {each.dtype.name}")
    attributes = {
        name: value
        for name, value in op.node_def.attr.items()
        if name not in _OF_THE_COMPILER and not name.startswith("_")
    }
    dtypes = [each.dtype for each in op.outputs]
    new = add_operation(op, list(ins), dtypes, attributes, name=op.name)
    for before, after in zip(op.outputs, new.outputs, strict=True):
        if not after.shape.is_fully_defined() and before.shape.rank is not None:
            after.set_shape(after.shape.merge_with(before.shape))
    return list(new.outputs)


def _with_variable(op: Any, ins: list[Any]) -> list[Any]:
    """An operation that reads or writes a variable."""
    handle: Handle = ins[0]
    if op.type == "ReadVariableOp":
        return [_read(op, handle)]
    if op.type == "ResourceGather":
        return [tf.gather(_read(op, handle), tf.cast(ins[1], tf.int32))]
    if op.type == "VariableShape":
        return [tf.constant(handle.shape.as_list(), op.get_attr("out_type"))]
    if op.type == "AssignVariableOp":
        if handle.value is None:
            _assign(handle, ins[1])
        return []
    changed = {
        "AssignAddVariableOp": lambda value: value + ins[1],
        "AssignSubVariableOp": lambda value: value - ins[1],
        "ResourceScatterUpdate": lambda value: rows.with_rows(value, *ins[1:]),
        "ResourceScatterAdd": lambda value: rows.with_sums(value, *ins[1:]),
        "ResourceScatterSub": lambda value: rows.with_sums(value, ins[1], -ins[2]),
    }.get(op.type)
    if changed is None or handle.value is not None:
        raise UnsupportedError(op, "on a variable")
    _assign(handle, changed(_read(op, handle)))
    return []


def _read(op: Any, handle: Handle) -> tf.Tensor:
    if handle.value is not None:
        return tf.constant(handle.value)
    dtype = op.node_def.attr["dtype"].type or op.node_def.attr["T"].type
    value = tf.raw_ops.ReadVariableOp(resource=handle.resource, dtype=tf.as_dtype(dtype))
    return tf.ensure_shape(value, handle.shape)


def _assign(handle: Handle, value: tf.Tensor) -> None:
    tf.raw_ops.AssignVariableOp(resource=handle.resource, value=value)


def _moved(op: Any, ins: list[Any]) -> Words:
    """An operation on unsigned integers that only moves them."""
    if op.type in _MOVES:
        return ins[0].map(lambda part: _like(op, [part, *ins[1:]], part.dtype))
    if op.type in ("Pack", "ConcatV2"):
        parts = [each for each in ins if isinstance(each, Words)]
        rest = ins[len(parts) :]
        lows = _like(op, [*(each.low for each in parts), *rest], tf.int32)
        if parts[0].high is None:
            return Words(lows)
        return Words(lows, _like(op, [*(each.high for each in parts), *rest], tf.int32))
    raise UnsupportedError(op, "of unsigned integers")


def _like(op: Any, ins: list[Any], dtype: tf.DType) -> tf.Tensor:
    """The operation on int32 in place of unsigned integers."""
    attributes = {n: v for n, v in op.node_def.attr.items() if not n.startswith("_")}
    attributes["T"] = tf.compat.v1.AttrValue(type=dtype.as_datatype_enum)
    new = add_operation(op, ins, [dtype], attributes)
    return new.outputs[0]


def _call(graph: Any, op: Any, ins: list[Any]) -> list[Any]:
    inner = _graph_of(graph, op.get_attr("f").name)
    return _emit(inner, _named(inner.inputs, ins), inner.outputs)


def _conditional(graph: Any, op: Any, ins: list[Any]) -> list[Any]:
    """A conditional whose branches return one tensor for each dtype.

    LiteRT 2.3 returns rubbish where a branch returns one tensor twice, or one that it received, and
    its converter merges tensors that are equal. Nothing is equal to what all outputs make together.
    """
    forms: list[list[tf.TensorSpec]] = []

    def branch(inner: Any) -> Callable[[], list[tf.Tensor]]:
        def call() -> list[tf.Tensor]:
            values = _emit(inner, _named(inner.inputs, ins[1:]), inner.outputs)
            forms.append([_form(op, value) for value in values])
            return _packed(values)

        return call

    then_graph, else_graph = cond_v2.get_func_graphs(op)
    packed = tf.cond(ins[0], branch(then_graph), branch(else_graph))
    packed = packed if isinstance(packed, (list, tuple)) else [packed]
    return _unpacked(packed, forms[0])


def _form(op: Any, value: Any) -> tf.TensorSpec:
    if not isinstance(value, tf.Tensor) or not value.shape.is_fully_defined():
        raise UnsupportedError(op, "that returns what has no fixed shape")
    return tf.TensorSpec(value.shape, value.dtype)


def _carried(dtype: tf.DType) -> tf.DType:
    """The dtype in which values of a dtype leave a conditional."""
    return tf.int32 if dtype == tf.bool else dtype


def _packed(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """A vector for each dtype, with one entry more, so that each is made here."""
    groups: dict[tf.DType, list[tf.Tensor]] = {}
    for value in values:
        dtype = _carried(value.dtype)
        groups.setdefault(dtype, []).append(tf.reshape(tf.cast(value, dtype), [-1]))
    if not groups:  # a conditional that only writes
        return [tf.constant([0])]
    return [
        tf.concat([*parts, tf.zeros([1], dtype)], 0)
        for dtype, parts in sorted(groups.items(), key=lambda group: group[0].name)
    ]


def _unpacked(packed: Sequence[tf.Tensor], forms: Sequence[tf.TensorSpec]) -> list[tf.Tensor]:
    vectors = {vector.dtype: vector for vector in packed}
    starts = dict.fromkeys(vectors, 0)
    values = []
    for form in forms:
        dtype = _carried(form.dtype)
        size = int(np.prod(form.shape))
        part = vectors[dtype][starts[dtype] : starts[dtype] + size]
        starts[dtype] += size
        values.append(tf.cast(tf.reshape(part, form.shape), form.dtype))
    return values


def _loop(graph: Any, op: Any, ins: list[Any]) -> list[Any]:
    """A loop over what its body changes; all else, variables too, its body reads from outside."""
    test, body = _inner_graphs(graph, op)
    fixed = [_root(o) is _root(i) for i, o in zip(body.inputs, body.outputs, strict=True)]

    def merged(inner: Any, moving: Sequence[Any]) -> dict[str, Any]:
        values = iter(moving)
        whole = [
            each if is_fixed else next(values) for each, is_fixed in zip(ins, fixed, strict=True)
        ]
        return _named(inner.inputs, whole)

    def step(*moving: Any) -> list[Any]:
        made = _emit(body, merged(body, moving), body.outputs)
        return [each for each, is_fixed in zip(made, fixed, strict=True) if not is_fixed]

    start = [each for each, is_fixed in zip(ins, fixed, strict=True) if not is_fixed]
    ended = tf.while_loop(
        lambda *moving: _emit(test, merged(test, moving), test.outputs)[0],
        step, start, parallel_iterations=1,
    )  # fmt: skip
    moved = iter(ended)
    return [each if is_fixed else next(moved) for each, is_fixed in zip(ins, fixed, strict=True)]


def _root(tensor: Any) -> Any:
    while tensor.op.type in ("Identity", "IdentityN"):
        tensor = tensor.op.inputs[tensor.op.outputs.index(tensor)]
    return tensor


def _named(inputs: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    return {each.name: value for each, value in zip(inputs, values, strict=True)}


def name_of(graph: Any, kind: str) -> str:
    """The name of the first operation of a type in a graph, or one within it; "" for none."""
    for op in graph.get_operations():
        if op.type == kind:
            return op.name
        if op.type in _CONDITIONALS + _LOOPS + _CALLS:
            for inner in _inner_graphs(graph, op):
                if name := name_of(inner, kind):
                    return name
    return ""
