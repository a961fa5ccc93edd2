"""Keras's optimizers by name, with their arguments; imports nothing heavy."""

import json
import math
from collections.abc import Sequence
from typing import Any

from nccl_tf.errors import UserError, near_names

SGD = "sgd"

_EVERY = {"weight_decay": None, "clipnorm": None, "clipvalue": None, "global_clipnorm": None}
_ADAM = {"beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-7, **_EVERY}

OPTIMIZERS: dict[str, dict[str, Any]] = {
    SGD: {"momentum": 0.0, "nesterov": False, **_EVERY},
    "adam": {**_ADAM, "amsgrad": False},
    "adamw": {**_ADAM, "amsgrad": False, "weight_decay": 0.004},
    "adamax": _ADAM,
    "nadam": _ADAM,
    "rmsprop": {"rho": 0.9, "momentum": 0.0, "epsilon": 1e-7, "centered": False, **_EVERY},
    "adagrad": {"initial_accumulator_value": 0.1, "epsilon": 1e-7, **_EVERY},
    "adadelta": {"rho": 0.95, "epsilon": 1e-7, **_EVERY},
    "lion": {"beta_1": 0.9, "beta_2": 0.99, **_EVERY},
}
"""The arguments of each optimizer beside the learning rate, with Keras's defaults."""

DEFAULT_RATE = 0.001
"""Keras's learning rate of every optimizer but SGD."""


def optimizer_arguments(optimizer: str, texts: Sequence[str]) -> dict[str, Any]:
    """The arguments of an optimizer that are not Keras's defaults, sorted by name.

    Args:
        optimizer: One of `OPTIMIZERS`.
        texts: Each a name and a value, such as "momentum:0.9" or "nesterov:true".

    Raises:
        UserError: A text has another form, the optimizer has no such argument, one is given twice,
            or a value is of another kind.
    """
    known, values = OPTIMIZERS[optimizer], {}
    for text in texts:
        name, _, value = text.partition(":")
        if name not in known:
            near = near_names(name, known)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UserError(
                f"--optimizer_arguments={text} with --optimizer={optimizer}: {hint}expected a name "
                f"and a value such as {next(iter(known))}:0.9, the name one of {', '.join(known)}"
            )
        if name in values:
            raise UserError(f"--optimizer_arguments has {name} twice: give it once")
        values[name] = _value(text, value, isinstance(known[name], bool))
    return {name: values[name] for name in sorted(values) if values[name] != known[name]}


def as_texts(arguments: dict[str, Any]) -> tuple[str, ...]:
    """Values by name in the form that `optimizer_arguments` and `rates_of_layers` read."""
    return tuple(f"{name}:{json.dumps(value)}" for name, value in arguments.items())


def _value(text: str, value: str, is_switch: bool) -> bool | float:
    try:
        read = json.loads(value)
    except ValueError:
        read = None
    if is_switch and isinstance(read, bool):
        return read
    if not is_switch and type(read) in (int, float) and math.isfinite(read):
        return float(read)
    expected = "true or false" if is_switch else "a finite number"
    raise UserError(f"--optimizer_arguments={text}: expected {expected} after the colon")
