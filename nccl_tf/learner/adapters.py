"""Adapters (LoRA) of a network: enabled again, saved beside their base, and sent alone."""

import functools
import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.keras_private import layers_of
from nccl_tf.learner.variable_flags import VariableFlags
from nccl_tf.packed_parts import check_kind
from nccl_tf.regular_files import open_regular
from nccl_tf.whole_files import replaced

_LAYERS = "adapters"
_NAMES = "names"
_BASE = "base"
_ENDING = ".npz"
_MOST_TEXT = 2**26
"""Bytes of a text: the names of 200,000 weights have so many."""
_AS_SAVED = "build the network, enable its adapters and freeze its layers as where they were saved"


def adapted(network: keras.Model) -> list[tuple[int, keras.layers.Layer]]:
    """The layers of a network that have adapters, each with its place among all layers."""
    layers = enumerate(layers_of(network))
    return [(place, layer) for place, layer in layers if getattr(layer, "lora_enabled", False)]


def dead(network: keras.Model) -> keras.layers.Layer | None:
    """A layer whose adapters are both trained and zero, so that their gradients are; or None.

    Adapters that are made have random numbers in the first matrix and zeros in the second.
    """
    for _, layer in adapted(network):
        pair = [v for v in layer.trainable_variables if "lora_" in v.name]
        if len(pair) == 2 and not any(keras.ops.any(v != 0) for v in pair):
            return layer
    return None


def config_of(network: keras.Model) -> dict[str, Any]:
    """A network's adapters and the frozen parts beside them, which no configuration has.

    Returns:
        For `enable`; empty without adapters.
    """
    layers = _forms(network)
    return {"layers": layers, **VariableFlags(network).frozen()} if layers else {}


def enable(network: keras.Model, config: Mapping[str, Any]) -> None:
    """Give a network that is made anew the adapters that it had.

    Args:
        network: Made from its configuration, in which some layers keep their adapters themselves.
        config: Of `config_of`.
    """
    layers = layers_of(network)
    for place, rank, alpha in config["layers"]:
        layer = layers[place]
        if not layer.lora_enabled:
            is_trainable, layer.trainable = layer.trainable, True
            layer.enable_lora(rank, lora_alpha=alpha)
            layer.trainable = is_trainable
        layer.lora_alpha = alpha  # which a layer of Keras forgets when it is built
    VariableFlags(network).freeze(config)


class AdapterWeights(keras.layers.Layer):
    """Adapters and the weights of their layers in a learner's file, as they are in the learner.

    A layer of Keras saves the product of its adapters merged into its kernel, and gives adapters of
    zero back, which would train otherwise. A learner holds this one in the attribute
    `weights_of_adapters`: Keras loads attributes in the order of their names, so that this one is
    loaded after those of `network`.

    Args:
        network: Of the learner.
    """

    def __init__(self, network: keras.Model):
        super().__init__()
        self._adapted = functools.partial(adapted, network)  # no part that Keras saves again

    def save_own_variables(self, store: Any) -> None:
        for name, variable in self._named():
            store[name] = variable

    def load_own_variables(self, store: Any) -> None:
        saved = set(store.keys())
        for name, variable in self._named():
            if name in saved:  # a file of before the adapters has them merged
                variable.assign(store[name])

    def _named(self) -> list[tuple[str, keras.Variable]]:
        return [
            (f"layer_{place}_{number}", variable)
            for place, layer in self._adapted()
            for number, variable in enumerate(layer.weights)
        ]


def save_adapters(network: keras.Model, path: Any) -> None:
    """Write what is trained of a network with adapters; `Learner.save_adapters` is public.

    Raises:
        UserError: The network has no adapters, or the file another ending.
    """
    path = _checked_path(path)
    layers = _checked(network)
    trained = network.trainable_variables
    columns: dict[str, Any] = {
        _LAYERS: np.array(json.dumps(layers)),
        _NAMES: np.array(json.dumps([v.path for v in trained])),
        _BASE: np.array(_digest(network)),
    }
    columns |= {f"{i:04d}": keras.ops.convert_to_numpy(v) for i, v in enumerate(trained)}
    with replaced(path.resolve(), _ENDING) as temporary:
        np.savez(temporary, **columns)


def load_adapters(network: keras.Model, path: Any) -> bool:
    """Read what `save_adapters` wrote, or somebody else, into a network with the same adapters.

    Returns:
        Whether the frozen weights are those that the adapters were trained beside.

    The network is as it was where it raises.

    Raises:
        UserError: The file cannot be read, is of other adapters, or has NaN or infinity.
    """
    path = _checked_path(path)
    layers, trained = _checked(network), network.trainable_variables
    try:
        with open_regular(path) as file, zipfile.ZipFile(file) as saved:
            for part in saved.infolist():
                check_kind(part)
            found = json.loads(_text(saved, _LAYERS))
            names = json.loads(_text(saved, _NAMES))
            base = _text(saved, _BASE)
            if found != layers or not isinstance(names, list) or len(names) != len(trained):
                raise UserError(
                    "received adapters of other layers, of another rank or with other trained "
                    f"weights, for a network with {len(layers)} layers with adapters and "
                    f"{len(trained)} trained weights: {_AS_SAVED}"
                )
            for i, variable in enumerate(trained):
                _check_form(saved, i, variable)
            arrays = [_array(saved, i, variable) for i, variable in enumerate(trained)]
    except UserError:
        raise
    except Exception as error:  # A broken file can raise any.
        raise UserError(
            f"cannot read the adapters {path} ({type(error).__name__}): expected a file that "
            "learner.save_adapters has written"
        ) from error
    for variable, array in zip(trained, arrays, strict=True):
        variable.assign(array)
    return base == _digest(network)


def _check_form(saved: zipfile.ZipFile, number: int, variable: keras.Variable) -> None:
    """Check by the header of an array, before it is read, that it is a value of the variable.

    Raises:
        UserError: It has another shape or dtype.
    """
    with saved.open(f"{number:04d}.npy") as part:
        shape, dtype = _header(part)
    expected = _dtype(variable)
    # NumPy writes dtypes that it does not know, such as bfloat16, as bytes without a name.
    same = dtype == expected or (expected.kind == "V" and dtype == f"V{expected.itemsize}")
    if shape != tuple(variable.shape) or not same:
        raise UserError(
            f"received adapters with {shape} {dtype} as the weight {variable.path}, expected "
            f"{tuple(variable.shape)} {expected}: {_AS_SAVED}"
        )


def _array(saved: zipfile.ZipFile, number: int, variable: keras.Variable) -> np.ndarray:
    """An array whose form is checked.

    Raises:
        UserError: It has NaN or infinity.
    """
    with saved.open(f"{number:04d}.npy") as part:
        array = np.lib.format.read_array(part, allow_pickle=False).view(_dtype(variable))
    if not np.isfinite(array).all():
        raise UserError(
            f"received adapters with NaN or infinity in the weight {variable.path}, expected "
            "finite numbers: get the file again"
        )
    return array


def _text(saved: zipfile.ZipFile, name: str) -> str:
    """A text of a file.

    Raises:
        ValueError: It is none, or longer than the texts of a network are.
    """
    with saved.open(f"{name}.npy") as part:
        shape, dtype = _header(part)
    if shape != () or dtype.kind != "U" or dtype.itemsize > _MOST_TEXT:
        raise ValueError(f"{name} is no text")
    with saved.open(f"{name}.npy") as part:
        return str(np.lib.format.read_array(part, allow_pickle=False))


def _header(part: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of an array in a file."""
    if np.lib.format.read_magic(part) != (1, 0):
        raise ValueError("another format of arrays")
    shape, _, dtype = np.lib.format.read_array_header_1_0(part)
    return shape, dtype


def _dtype(variable: keras.Variable) -> np.dtype:
    return np.dtype(keras.backend.standardize_dtype(variable.dtype))


def _forms(network: keras.Model) -> list[list[Any]]:
    """Place, rank and alpha of each layer with adapters."""
    return [
        [place, int(layer.lora_rank), float(layer.lora_alpha)] for place, layer in adapted(network)
    ]


def _checked(network: keras.Model) -> list[list[Any]]:
    """As `_forms`.

    Raises:
        UserError: There are none.
    """
    layers = _forms(network)
    if not layers:
        raise UserError(
            "received a network without adapters: call enable_lora(rank) of its layers, or of a "
            "KerasHub backbone, before the learner is made"
        )
    return layers


def _checked_path(path: Any) -> Path:
    if not os.fspath(path).endswith(_ENDING):
        raise UserError(
            f"received {os.fspath(path)!r} as the file of adapters, expected one that ends in "
            f"{_ENDING}"
        )
    return Path(path)


def _digest(network: keras.Model) -> str:
    """SHA-256 of the frozen weights, in order; the states of dropout are none."""
    digest = hashlib.sha256()
    for variable in network.non_trainable_weights:
        digest.update(np.ascontiguousarray(keras.ops.convert_to_numpy(variable)).tobytes())
    return digest.hexdigest()
