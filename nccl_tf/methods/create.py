"""A method's row, its kind of memory and a stream's heads, put together to a learner."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from nccl_tf.arguments.choices import RESERVOIR_RULES
from nccl_tf.errors import UserError, checked_at_least
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import get_method
from nccl_tf.methods.row import Method

if TYPE_CHECKING:
    from nccl_tf.streams.stream import Stream

_LOGGER = logging.getLogger("nccl_tf")

_ELSEWHERE = {
    "optimizer": "the optimizer takes it, in compile",
    "network": "the network takes it, where it is made",
    "outputs": "the network has so many outputs more than classes",
    "memory": "leave memory out for a learner without one",
}
"""Where the numbers of a method go that its learner does not take."""


def create(
    name: str, network: Any, stream: "Stream", memory: Any = None, *, seed: int = 0, **numbers: Any
) -> Any:
    """A learner by the name of its method, not compiled, as the command puts it together.

    It has a memory of the kind that the method keeps, the classes and heads of the stream, and the
    numbers of the method's row. The memory takes the form of its examples from the first `fit`,
    because the loss of `compile` decides what a target is: a class, a number, or one at each place.

    What the command sets beside the learner is yours to set, by the method's row: the rate of its
    optimizer (`METHODS[name].learning_rates`), with the momentum of "stable_sgd" and the like and
    the weight decay of "gdumb"; the size of batches (`batch_sizes`) and the passes (`epochs`) of
    `learn`; dropout in the network of "stable_sgd" and the like, and outputs beyond the classes in
    that of "supsup". A line of the log names the numbers of the optimizer, and what the network
    lacks.

    Args:
        name: A name in `nccl_tf.METHODS`, such as "derpp".
        network: A Keras model from the stream's inputs to a logit for each of its classes.
        stream: Its tasks.
        memory: Examples that the memory holds in all, shared among classes by a ring and by
            exemplars; or a memory; None for a method without.
        seed: Seed of the learner's and the memory's draws.
        **numbers: Arguments of the learner in place of the row's: of every method `rate_decay` or
            `average_weights`, of one with a memory `memory_batch_size`, and those of the method,
            such as `der_alpha` of "derpp"; and `reservoir`, "exact" or "off_by_one", of a memory
            that has such a rule.

    Raises:
        UserError: There is no such method or number, the method has no meaning on the stream, or
            the memory is missing, too much or too small for a slot for each class.

    Example:

    ```python
    stream = nccl_tf.load_stream("split_digits", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = nccl_tf.create("derpp", network, stream, memory=100, der_alpha=0.3)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    ```
    """
    method = get_method(name)
    same = len(stream) > 1 and len(set(map(frozenset, stream.task_classes))) == 1
    reason = method.unsupported_reason("permuted" if same else "split", stream.head)
    if reason:
        raise UserError(f"{name} cannot learn {stream.name} with a {stream.head} head: {reason}")
    rows = {row.name: row for row in method.hyperparameters}
    for given in numbers.keys() & rows.keys():
        if rows[given].part in _ELSEWHERE:
            raise UserError(
                f"received {given}={numbers[given]!r} for {name}, whose learner does not take it: "
                f"{_ELSEWHERE[rows[given].part]}"
            )
    _warn_of_outputs(method, network, stream)
    _warn_of_recipe(method, network, stream)
    arguments = {
        row.name: row.default_of(stream.family) for row in rows.values() if row.part == "learner"
    }
    rule = numbers.pop("reservoir", None)
    arguments |= numbers
    if isinstance(memory, int):
        memory = _memory_of(method, stream, memory, rule, seed)
    elif rule is not None:
        raise UserError(
            f"received reservoir={rule!r} without the size of a memory: give memory=500, or the "
            "rule to the memory that you build"
        )
    optional = any(row.part == "memory" for row in rows.values())
    if memory is None and method.memory and not optional:
        raise UserError(
            f"received no memory for {name}: give the number of examples that it may hold, "
            "memory=500"
        )
    if memory is not None and method.memory_batch:
        arguments.setdefault("memory_batch_size", method.memory_batch)
    return make_learner(method, network, memory, stream, seed, len(stream), arguments)


def _warn_of_outputs(method: Method, network: Any, stream: "Stream") -> None:
    """Warn where the command gives a network outputs beyond the classes, and this one has none."""
    wants = any(row.part == "outputs" for row in method.hyperparameters)
    if wants and stream.head == "single" and network.output_shape[-1] <= stream.num_classes:
        _LOGGER.warning(
            "%s finds the task of an example by outputs beyond those of the classes too, and the "
            "network has none: make it with 100 outputs more, as the command does, num_classes=%d; "
            "the command also takes SGD at the rate %g",
            method.name, stream.num_classes + 100, method.learning_rates.of_family(stream.family),
        )  # fmt: skip


def _warn_of_recipe(method: Method, network: Any, stream: "Stream") -> None:
    """Warn where the command gives the optimizer numbers, or the network dropout, by the row."""
    from nccl_tf.keras_private import layers_of  # it imports Keras

    drops = any("Dropout" in type(layer).__name__ for layer in layers_of(network))
    rows = [(row, row.default_of(stream.family)) for row in method.hyperparameters]
    rate = method.learning_rates.of_family(stream.family)
    numbers = [f"{row.name}={value:g}" for row, value in rows if row.part == "optimizer" and value]
    wants = [f"an optimizer SGD({', '.join([f'{rate:g}', *numbers])})"] if numbers else []
    wants += [
        f"{row.name} {value:g} in the network, which has none"
        for row, value in rows
        if row.part == "network" and row.name == "dropout" and value and not drops
    ]
    if wants:
        _LOGGER.warning(
            "the recipe of %s has parts that its learner does not take, and the command sets: %s",
            method.name, " and ".join(wants),
        )  # fmt: skip


def make_learner(
    method: Method,
    network: Any,
    memory: Any,
    stream: "Stream",
    seed: int,
    num_tasks: int,
    arguments: Mapping[str, Any],
) -> Any:
    """A learner of a method's row.

    Args:
        method: The row.
        network: What it learns with.
        memory: Its memory, or None.
        stream: Its heads are the learner's.
        seed: Seed of the learner's draws.
        num_tasks: Tasks that it is to learn, for methods that have to know.
        arguments: The others of the constructor.
    """
    needed = {} if memory is None else {"memory": memory}
    if method.takes_num_tasks:
        needed["num_tasks"] = num_tasks
    return method.learner_class()(network, heads=stream.heads, seed=seed, **{**needed, **arguments})


def make_memory(
    method: Method,
    stream: "Stream",
    *,
    capacity: int | None,
    slots: int | None,
    rule: str | None,
    seed: int,
    **forms: Any,
) -> Any:
    """An empty memory of a method's kind.

    Args:
        method: The row, with a memory.
        stream: Its classes are those of the memory.
        capacity, slots, rule: As for `MemoryKind.build`.
        seed: Seed of the memory's draws.
        **forms: Of its columns, as for `Memory`, such as `example_shape`; without them it takes
            them from the first `fit`.
    """
    return get_memory(str(method.memory)).build(
        capacity=capacity,
        slots=slots,
        rule=rule,
        task_classes=stream.task_classes,
        seed=seed,
        **forms,
    )


def _memory_of(method: Method, stream: "Stream", size: int, rule: str | None, seed: int) -> Any:
    if method.memory is None:
        raise UserError(f"received memory={size} for {method.name}, which keeps none: leave it out")
    kind = get_memory(method.memory)
    if rule is not None and not kind.has_rule:
        raise UserError(
            f"received reservoir={rule!r} for {method.name}, whose memory has no such rule: leave "
            "it out"
        )
    if kind.memory_class().by_class and not any(stream.task_classes):
        raise UserError(
            f"received {stream.name}, whose targets are numbers to predict, for {method.name}, "
            "whose memory keeps examples by their class: take a method with a reservoir, such as "
            "er_reservoir"
        )
    cells = max(1, sum(map(len, stream.task_classes)))
    capacity, slots = kind.shares(checked_at_least("memory", size, 1), cells, f"memory={size}")
    rule = (rule or RESERVOIR_RULES[0]) if kind.has_rule else None
    return make_memory(method, stream, capacity=capacity, slots=slots, rule=rule, seed=seed)
