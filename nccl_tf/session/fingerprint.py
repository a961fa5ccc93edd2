"""The fingerprint of a call of `learn`, by which a checkpoint of another call is refused."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from nccl_tf.learner.learner import Learner

_FREE = ("optimizer", "run_eagerly", "steps_per_execution", "jit_compile")
"""Of `compile`: the optimizer is looked at by itself, and so is what the last two come to; eager
steps change no bit."""
_COUNT = re.compile(r"_\d+$")
_OF_LAYERS = ("keras_history", "input_layers", "output_layers")
"""Where a configuration of Keras names layers."""
_FIRST_SETTINGS: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""Of each optimizer, before a call of `learn` in which callbacks may have changed its rate."""


def fingerprint(model: Learner, tasks: Sequence[Any], settings: dict[str, Any]) -> str:
    """A hash of all inputs that decide the result of a call, except first weights, callbacks, code.

    Args:
        model: Its class, hyperparameters, network, optimizer, loss and metrics.
        tasks: Their numbers, classes and examples, which are read once.
        settings: Further values.
    """
    compiled = {n: v for n, v in (model.get_compile_config() or {}).items() if n not in _FREE}
    compiled["loss"] = describe(compiled["loss"])
    seen: list[Any] = [type(model).__name__, model.get_config(), _first_settings(model.optimizer)]
    seen += [compiled, settings, [[task.task_id, task.classes] for task in tasks]]
    text = json.dumps(_uncounted(seen, {}), default=_as_json, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for task in tasks:
        for examples in filter(None, (task.train, task.test, task.validation)):
            inputs = examples.inputs if isinstance(examples.inputs, dict) else {"": examples.inputs}
            for name, column in [*sorted(inputs.items()), ("", examples.labels)]:
                digest.update(json.dumps([name, _as_json(column)]).encode())
    return digest.hexdigest()


def _as_json(value: Any) -> Any:
    """An array by its form and the hash of all of it; another value by its text."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return str(value)
    if value.dtype == object:
        content: Any = repr(value.tolist()).encode()
    else:
        content = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return [str(value.dtype), value.shape, hashlib.sha256(content).hexdigest()]


def describe(part: Any) -> Any:
    """A loss or a metric as values that are the same in every process: its settings, or its name.

    Args:
        part: A Keras object, or what `get_compile_config` makes of one, a function, or a name.
    """
    if hasattr(part, "get_config"):
        return [type(part).__name__, part.get_config()]
    if callable(part):
        return [part.__module__, part.__qualname__]
    return part


def _first_settings(optimizer: Any) -> dict[str, Any]:
    """Initial configuration of an optimizer, even if an interrupted call changed its rate."""
    if optimizer not in _FIRST_SETTINGS or not int(optimizer.iterations):
        _FIRST_SETTINGS[optimizer] = optimizer.get_config()
    return _FIRST_SETTINGS[optimizer]


def _uncounted(value: Any, places: dict[str, int], refers: bool = False) -> Any:
    """A configuration without the numbers in names, which Keras counts up in a process.

    Args:
        value: The configuration.
        places: The names so far with their place, by which layers name those that they follow.
        refers: Whether texts are names of layers.
    """
    if isinstance(value, dict):
        if "name" in value:
            places.setdefault(str(value["name"]), len(places))
        parts = {n: _uncounted(v, places, refers or n in _OF_LAYERS) for n, v in value.items()}
        return parts | {n: _COUNT.sub("", str(value[n])) for n in ("name",) if n in value}
    if isinstance(value, (list, tuple)):
        return [_uncounted(part, places, refers) for part in value]
    return places.get(value, value) if refers and isinstance(value, str) else value
