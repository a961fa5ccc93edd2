"""The arguments that an object was made with, as they were given, and their form in a file."""

import inspect
from collections.abc import ItemsView, KeysView, Mapping, Sequence, Set, ValuesView
from typing import Any, TypeVar

import keras
import numpy as np

from nccl_tf.arguments.constructors import refuse_unknown
from nccl_tf.errors import UserError

_PLAIN = (type(None), bool, int, float, str)
_VIEWS = (KeysView, ItemsView, ValuesView)
Made = TypeVar("Made")


class ConstructorArguments:
    """The arguments of a constructor by their names: those that were given, and other defaults.

    Containers and arrays are copied, so that a list which a caller or the constructor changes later
    is in a file as it was given. It is no container itself: Keras would save what is in one twice.

    Args:
        cls: The class that is made, whose signature `show_arguments` has composed.
        args, kwargs: What it is made with.

    Raises:
        UserError: An argument is unknown while another is missing, which Python would name alone:
            the missing one may be there by another library's name.
    """

    def __init__(self, cls: type, args: Sequence[Any], kwargs: Mapping[str, Any]):
        signature = inspect.signature(cls)
        known = {name: value for name, value in kwargs.items() if name in signature.parameters}
        self._owner = cls.__name__
        self._values: dict[str, Any] = {}
        self._lost = ""
        try:
            bound = signature.bind(*args, **known)
        except TypeError as error:
            refuse_unknown(cls, kwargs.keys() - known.keys())
            self._lost = f"arguments have no names ({error}): name them in its constructor"
            return
        bound.apply_defaults()
        # What the signature does not show is taken out of **kwargs, or refused by the constructor.
        values = {**bound.arguments, **kwargs}
        self._values = {name: _copied(value) for name, value in values.items()}

    def replace(self, received: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        """Put other values in place of those that a base has received.

        A class may take an argument of another meaning under a name of its base, or lack one:
        arguments that the base has not received as they were given stay.

        Args:
            received: Arguments by name, as the base has received them.
            now: What it may receive as well, or would have to receive now.

        Returns:
            Whether the class was given what the base has received.
        """
        missing = object()
        is_given = all(
            _as_lists(self._values.get(name, missing)) == _as_lists(value)
            for name, value in received.items()
        )
        if is_given:
            self._values.update({name: now[name] for name in now if name in self._values})
        return is_given

    def follow(self, received: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        """As `replace`, of what the object has become; where none says it, `config` refuses."""
        if not self.replace(received, now):
            names = " and ".join(received)
            self._lost = (
                f"{names} does not say what it has become: take {names} as the base does, or hand "
                "**kwargs on to it"
            )

    def config(self) -> dict[str, Any]:
        """The arguments in the form of a file, from which `restored` makes an equal object.

        Raises:
            UserError: One has no such form.
        """
        if self._lost:
            raise UserError(
                f"received a {self._owner} to save that could not be loaded, because its "
                f"{self._lost}"
            )
        return {name: self._encoded(name, value) for name, value in self._values.items()}

    def _encoded(self, name: str, value: Any) -> Any:
        """An argument as JSON; Keras alone makes a tuple a list, and a number as key a text."""
        if isinstance(value, _PLAIN):
            return value
        if type(value) is list:
            return [self._encoded(name, part) for part in value]
        if isinstance(value, (tuple, set, frozenset)):
            parts = [self._encoded(name, part) for part in value]
            return {"class_name": f"__{type(value).__name__}__", "config": {"parts": parts}}
        if type(value) is dict:
            pairs = {key: self._encoded(name, part) for key, part in value.items()}
            if all(type(key) is str for key in pairs) and "class_name" not in pairs:
                return pairs
            parts = [[self._encoded(name, key), part] for key, part in pairs.items()]
            return {"class_name": "__dict__", "config": {"parts": parts}}
        try:
            found = keras.saving.serialize_keras_object(value)
            if callable(value) and not hasattr(value, "get_config"):
                _decoded(found)
            return found
        except UserError:  # of an argument of the argument
            raise
        except Exception as error:  # A get_config of somebody else can raise any.
            is_lambda = getattr(value, "__name__", "") == "<lambda>"
            kind = "lambda" if is_lambda else type(value).__name__
            raise UserError(
                f"received a {self._owner} to save whose argument {name!r} is a {kind}, which "
                "Keras does not write into a file: give numbers, texts, lists, arrays, Keras "
                "objects or functions under @keras.saving.register_keras_serializable()"
            ) from error


def restored(cls: type[Made], config: Mapping[str, Any]) -> Made:
    """The object of a class that a configuration of `ConstructorArguments` describes.

    Defaults are left to the constructor: a class may set an argument of its base itself, which then
    is shown with the base's default and cannot be given.

    Args:
        cls: Its class.
        config: Of `ConstructorArguments.config`.

    Raises:
        UserError: The class does not take an argument, or refuses its value.
    """
    parameters = inspect.signature(cls).parameters
    values = {name: _decoded(value) for name, value in config.items()}
    by_place = [
        values.pop(name)
        for name, parameter in parameters.items()
        if parameter.kind is parameter.POSITIONAL_ONLY and name in values
    ]
    given = {
        name: value
        for name, value in values.items()
        if name not in parameters or not _is_default(value, parameters[name].default)
    }
    return cls(*by_place, **given)


def _is_default(value: Any, default: Any) -> bool:
    return isinstance(value, _PLAIN) and type(value) is type(default) and value == default


def _copied(value: Any) -> Any:
    """A value as no other reference can change it, containers as Python's own."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, (*_PLAIN, bytes)):
        return value
    if isinstance(value, tuple):
        return tuple(map(_copied, value))
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, Set) and not isinstance(value, _VIEWS):
        return frozenset(value) if isinstance(value, frozenset) else set(value)
    if isinstance(value, (Sequence, *_VIEWS)):
        return list(map(_copied, value))
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    if "class_name" not in value:
        return {key: _decoded(part) for key, part in value.items()}
    kind = _CONTAINERS.get(value["class_name"])
    if kind is None:
        return keras.saving.deserialize_keras_object(value)
    return kind(map(_decoded, value["config"]["parts"]))


_CONTAINERS: dict[str, Any] = {
    "__tuple__": tuple, "__set__": set, "__frozenset__": frozenset, "__dict__": dict,
}  # fmt: skip


def _as_lists(value: Any) -> Any:
    """An argument in a form in which a tuple, a list and an array of equal entries are equal."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _as_lists(part) for key, part in value.items()}
    is_sequence = isinstance(value, (tuple, list))
    return [_as_lists(part) for part in value] if is_sequence else value
