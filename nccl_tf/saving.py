"""Loading learners that were saved: Keras finds a class only when its module has been imported."""

import importlib
import io
import json
import math
import os
import pathlib
import re
import reprlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from nccl_tf.errors import UserError, one_line
from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.methods.registry import METHODS
from nccl_tf.packed_parts import check_packed
from nccl_tf.regular_files import open_regular

MOST_TIMES = 32
"""A .keras file stands for at most so many times its own size, or for `SMALL` bytes: Keras packs
nothing, and others, who pack weights and a memory, gain less."""
SMALL = 64 * 2**20
MOST_BUILT = 8
"""What a file builds takes at most so many times the bytes of its weights, or `SMALL`: slots of an
optimizer that has not stepped, and averages, are not in it."""
MOST_OBJECTS = 50
FEW_OBJECTS = 2_000
"""A configuration names at most so many objects for each array of the weights, and some in any
case: Keras names about ten for a layer, and takes a hundredth of a second to build it."""
MOST_DEPTH = 200
"""Of groups in an HDF5 file, which takes the square of it to be gone through; Keras opens two or
three for each layer around a layer."""
MOST_PARTS = 2_000
"""Of a file: Keras writes three, and one for each vocabulary, and unpacks each into a folder."""
MOST_THRESHOLDS = 100_000
"""Of a metric, such as an area under a curve, which lists them before it makes a variable."""
_ARRAYS = ("__numpy__", "__tensor__")
_NUMBERS = re.compile(r"bool|string|(u?int|b?float|complex)[0-9]+\w*", re.ASCII)
"""Dtypes of arrays in a configuration: NumPy's S1000000000 has a billion bytes for each text."""
_WEIGHTS = "model.weights.h5"
"""Keras reads model.weights.npz, too, and each of its arrays whole before it knows what to do."""
_MOST_REASON = 300
"""Letters of the reason why Keras refuses a file: the file chooses some of them."""


def register_classes() -> None:
    """Import every module with a class that a saved learner, memory or network can name."""
    importlib.import_module("nccl_tf.networks.cut")
    importlib.import_module("nccl_tf.networks.layers")
    importlib.import_module("nccl_tf.learner.task_schedule")
    importlib.import_module("nccl_tf.memories.mixed")
    for kind in MEMORIES.values():
        kind.memory_class()
    for method in METHODS.values():
        method.learner_class()


def unpickled(load: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A learner out of a pickle, in a process that may have imported nothing else.

    Args:
        load: Keras's function that makes it.
        arguments: Of that function.
    """
    register_classes()
    return load(*arguments)


def load_model(path: str | pathlib.Path, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """Load a learner that `learner.save` wrote, by `keras.models.load_model` in safe mode.

    Args:
        path: The .keras file.
        custom_objects: Your own classes by name, as for `keras.models.load_model`; None for
            those that `keras.saving.register_keras_serializable` knows.

    Returns:
        The learner, with its memory, its random draws and its optimizer's state.

    Raises:
        UserError: The file cannot be read, is a pipe or a device, of another format, broken or far
            larger unpacked than it is, its configuration asks for far more than its weights, or it
            holds code.
    """
    # Keras waits for a pipe, and reads other formats, which can hold code.
    try:
        with open_regular(path) as file:
            is_zip = zipfile.is_zipfile(file)
            weights = _checked_size(path, file) if is_zip else 0
    except OSError as error:
        raise UserError(
            f"cannot read the model {path} ({error.strerror}): expected a .keras file that "
            "learner.save has written"
        ) from error
    if not is_zip:
        raise UserError(f"{path} is no .keras file: save the learner with learner.save again")
    register_classes()
    import keras

    objects = None if custom_objects is None else dict(custom_objects)
    try:
        with _building_at_most(SMALL + MOST_BUILT * weights):
            return keras.models.load_model(path, objects, safe_mode=True)
    except Exception as error:  # A broken file can raise any.
        raise _refusal(path, error) from error


def _refusal(path: str | pathlib.Path, error: Exception) -> UserError:
    reason = one_line(str(error))
    if len(reason) > _MOST_REASON:
        reason = f"{reason[:_MOST_REASON]} [...]"
    return UserError(f"cannot load the model {path} ({type(error).__name__}): {reason}")


@contextmanager
def _building_at_most(most: int) -> Iterator[None]:
    """Refuse variables of more than `most` bytes together, before the one too many is made.

    A layer Normalization with a given mean spreads it over the shape of what it is called on; this
    is counted too.

    Raises:
        UserError: The body makes them.
    """
    import tensorflow as tf

    from nccl_tf.keras_private import before_normalization

    built = 0

    def count(size: int) -> None:
        nonlocal built
        built += size
        if built > most:
            raise UserError(
                f"its configuration asks for more than {most:,} bytes, and its weights for far "
                "less: expected a configuration that fits the weights; get the file again"
            )

    def make(next_creator: Callable[..., Any], **arguments: Any) -> Any:
        value = arguments["initial_value"]
        if callable(value):  # whose trace has a shape, and no memory
            value = tf.function(value, autograph=False).get_concrete_function().structured_outputs
        dtype = tf.as_dtype(arguments.get("dtype") or value.dtype)
        count(math.prod(value.shape) * dtype.size)
        return next_creator(**arguments)

    with tf.variable_creator_scope(make), before_normalization(lambda sides: count(8 * sides)):
        yield


def _checked_size(path: str | pathlib.Path, file: BinaryIO) -> int:
    """The bytes of a file's weights once they are read, if it does not unpack to far more.

    Raises:
        UserError: It is, or its parts cannot be read.
    """
    most = max(SMALL, MOST_TIMES * os.fstat(file.fileno()).st_size)
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            if len(parts) > MOST_PARTS:
                raise UserError(
                    f"the model {path} has {len(parts):,} parts, expected {MOST_PARTS:,} at most: "
                    "save the learner with learner.save again"
                )
            _check_size(path, sum(part.file_size for part in parts), most)
            for part in parts:
                check_packed(archive, part)
            if _WEIGHTS not in archive.namelist():
                raise UserError(
                    f"the model {path} has no {_WEIGHTS}, where learner.save writes weights, and "
                    "weights of another format are not read: save the learner again"
                )
            weights = [part for part in parts if part.filename.endswith((".h5", ".hdf5"))]
            sizes = [size for part in weights for size in _sizes_of_arrays(archive, part)]
            _check_size(path, sum(sizes), most)
            if "config.json" in archive.namelist():
                _check_objects(path, archive.read("config.json"), len(sizes))
            return sum(sizes)
    except UserError:
        raise
    except Exception as error:  # A broken archive, or HDF5 file, can raise any.
        raise _refusal(path, error) from error


def _check_size(path: str | pathlib.Path, size: int, most: int) -> None:
    if size > most:
        raise UserError(
            f"the model {path} unpacks to {size:,} bytes, more than {most:,}, which a file of its "
            "size may stand for: save the learner with learner.save again"
        )


def _check_objects(path: str | pathlib.Path, config: bytes, arrays: int) -> None:
    """Check that a configuration asks for no more than a learner of such weights can need.

    Args:
        path: The file.
        config: Of its learner, as JSON.
        arrays: How many arrays the weights have.

    Raises:
        UserError: It does.
    """
    count = 0

    def add(found: dict[str, Any]) -> dict[str, Any]:
        nonlocal count
        count += "class_name" in found
        for node in found.get("inbound_nodes") or ():
            if not _is_called_on_tensors(node):
                raise UserError(
                    f"the configuration in the model {path} calls a layer on numbers alone, which "
                    "Keras would compute while it loads, expected calls on the network's tensors: "
                    "get the file again"
                )
        if any(_is_stft(value) for key, value in found.items() if key.endswith("initializer")):
            raise UserError(
                f"the configuration in the model {path} has the initializer STFT, whose window of "
                "any length would be computed while it loads: save a network with another one"
            )
        if found.get("class_name") in _ARRAYS:
            of_array = found.get("config")
            dtype = of_array.get("dtype") if isinstance(of_array, dict) else None
            if not (isinstance(dtype, str) and _NUMBERS.fullmatch(dtype)):
                raise UserError(
                    f"the configuration in the model {path} has an array of "
                    f"{reprlib.repr(dtype)}, expected numbers, whose size is known: get the file "
                    "again"
                )
        thresholds = found.get("num_thresholds")
        if isinstance(thresholds, (int, float)) and thresholds > MOST_THRESHOLDS:
            raise UserError(
                f"the configuration in the model {path} asks for a metric of {thresholds:,} "
                f"thresholds, expected {MOST_THRESHOLDS:,} at most: get the file again"
            )
        return found

    json.loads(config, object_hook=add)
    most = FEW_OBJECTS + MOST_OBJECTS * arrays
    if count > most:
        raise UserError(
            f"the configuration in the model {path} names {count:,} layers and other objects, and "
            f"its weights have {arrays:,} arrays, expected {most:,} objects at most: get the file "
            "again"
        )


def _is_called_on_tensors(node: Any) -> bool:
    """Whether a call in the configuration of a network has a tensor of it among its arguments."""
    if not isinstance(node, dict):  # of a version of Keras whose files end in .h5
        return False
    return _has_tensor(node.get("args")) or _has_tensor(node.get("kwargs"))


def _has_tensor(value: Any) -> bool:
    """Whether Keras finds a tensor of the network in an argument: itself, or in lists and dicts."""
    if isinstance(value, dict):
        if "class_name" in value:
            return value["class_name"] == "__keras_tensor__"
        value = list(value.values())
    return isinstance(value, list) and any(map(_has_tensor, value))


def _is_stft(initializer: Any) -> bool:
    name = initializer.get("class_name") if isinstance(initializer, dict) else initializer
    return isinstance(name, str) and name.lower().startswith("stft")


def _sizes_of_arrays(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> list[int]:
    """The bytes that each data set of an HDF5 file takes once it is read."""
    import h5py

    sizes: list[int] = []

    def add(name: str, item: Any) -> None:
        if name.count("/") > MOST_DEPTH:
            raise ValueError(f"groups of weights more than {MOST_DEPTH} deep in one another")
        if any(item.attrs.get_id(attribute).shape for attribute in item.attrs):
            raise ValueError(f"an attribute of {name[-100:]!r} that is a list")
        if isinstance(item, h5py.Dataset):
            if item.dtype.hasobject:  # which may all be the same one in the file
                raise ValueError(f"values of any length in {name[-100:]!r}")
            sizes.append(math.prod(item.shape or ()) * item.dtype.itemsize)

    with archive.open(part) as packed:
        # A packed part is read whole, because HDF5 goes back and forth in it.
        whole = packed if part.compress_type == zipfile.ZIP_STORED else io.BytesIO(packed.read())
        with h5py.File(whole, "r") as weights:
            weights.visititems(add)
    return sizes
