"""Reading untrusted pickles of NumPy arrays and plain containers, and nothing else.

A pickle is a program, and `pickle.load` lets it call any function. Here it can only call what a
pickled array needs, and arrays and dtypes are checked, because NumPy trusts their state. A file is
bounded by its size; what it builds from itself is not, so that a hostile one can take time.
"""

import collections
import math
import os
import pickle
import reprlib
import sys
from typing import Any, ClassVar

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular

_KINDS = "biufcSUO"  # No structured dtypes: their pickled state can claim a false layout.
_MAX_SPEC_LENGTH = 16
_MAX_RANK = 64
_MAX_INTEGER = 2**63 - 1
_MAX_BYTES = 2**33


def load_pickle(path: str | os.PathLike) -> Any:
    """Read a pickle of NumPy arrays, dtypes, scalars and plain containers.

    Files written by Python 2 are supported; their strings are decoded as latin1. Arrays may be of a
    subclass of `np.ndarray`; `np.asarray` converts them.

    Raises:
        UserError: The file cannot be opened, is broken, or contains anything but arrays and plain
            containers.
    """
    try:
        with open_regular(path, _MAX_BYTES) as file:
            return _Unpickler(file, encoding="latin1").load()
    except OSError as error:
        raise UserError(
            f"cannot read {os.fspath(path)!r} ({error.strerror}): expected a readable pickle file"
        ) from error
    except pickle.UnpicklingError as error:
        raise UserError(
            f"refused the pickle {os.fspath(path)!r}, which is broken or holds {error}: expected "
            f"NumPy arrays and plain containers only; save it again in that form"
        ) from error
    except Exception as error:  # A broken pickle can fail in any of its opcodes.
        raise UserError(
            f"the pickle {os.fspath(path)!r} is broken ({type(error).__name__}): expected NumPy "
            f"arrays and plain containers; get the file again"
        ) from error


class _Dtype:
    """A dtype during reading: type and byte order."""

    def __init__(self, spec: str, align: Any = False, copy: Any = True) -> None:
        plausible = isinstance(spec, str) and len(spec) <= _MAX_SPEC_LENGTH
        self.dtype: Any = np.dtype(spec) if plausible else None
        if self.dtype is None or self.dtype.kind not in _KINDS:
            raise pickle.UnpicklingError(f"dtype {_brief(spec)}")

    def __setstate__(self, state: tuple) -> None:
        _, order, subdtype, names, fields = state[:5]
        plain = isinstance(order, str) and len(order) == 1
        if not plain or subdtype is not None or names is not None or fields is not None:
            raise pickle.UnpicklingError("a structured dtype")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray):
    """An array during reading: `__setstate__` checks the state that the file claims."""

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, is_fortran, data = state
        checked: Any = (1, shape, dtype.dtype, bool(is_fortran), _check_data(shape, dtype, data))
        super().__setstate__(checked)


def _check_data(shape: tuple[int, ...], dtype: _Dtype, data: Any) -> Any:
    """Return the raw data if their length matches shape and dtype."""
    if isinstance(data, str):  # A Python 2 string.
        data = data.encode("latin1")
    if (
        not isinstance(shape, tuple)
        or len(shape) > _MAX_RANK
        or not all(isinstance(side, int) and 0 <= side <= _MAX_INTEGER for side in shape)
        or not dtype.dtype.itemsize
    ):
        raise pickle.UnpicklingError("an array of an impossible shape")
    kind, count = dtype.dtype.kind, math.prod(shape)
    expected = count if kind == "O" else count * dtype.dtype.itemsize
    if isinstance(data, list) != (kind == "O") or len(data) != expected:
        raise pickle.UnpicklingError("an array whose data do not fit its shape")
    if kind == "U":
        points = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.dtype.byteorder))
        if points.max(initial=0) > sys.maxunicode:
            raise pickle.UnpicklingError("text of characters that do not exist")
    return data


_NDARRAY = object()  # Only a marker: calling np.ndarray would allocate the size a file claims.


def _reconstruct(kind: object, shape: tuple[int, ...], code: Any) -> np.ndarray:
    if kind is not _NDARRAY or not isinstance(shape, tuple) or shape != (0,):
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.ndarray.__new__(_Array, (0,), np.int8)


def _frombuffer(data: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    flat = np.frombuffer(_check_data(shape, dtype, data), dtype.dtype)
    return flat.reshape(shape, order=order)  # type: ignore[call-overload]


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return np.frombuffer(_check_data((), dtype, data), dtype.dtype)[0]


def _encode(text: str, encoding: str) -> bytes:
    if not isinstance(encoding, str) or encoding != "latin1":
        raise pickle.UnpicklingError(f"the codec {_brief(encoding)}")
    return text.encode("latin1")


def _brief(value: Any) -> str:
    """A value in a message: text shortened, else its type, as it may be nested without end."""
    return reprlib.repr(value)[1:-1] if isinstance(value, str) else f"a {type(value).__name__}"


def _no_bytes() -> bytes:
    return b""  # As in protocols below 3; `bytes` would allocate the size a file claims.


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): collections.OrderedDict,
}
for _package in ("builtins", "__builtin__"):
    _ALLOWED[_package, "set"] = set
    _ALLOWED[_package, "bytes"] = _no_bytes
for _package in ("numpy.core", "numpy._core"):
    _ALLOWED[f"{_package}.multiarray", "_reconstruct"] = _reconstruct
    _ALLOWED[f"{_package}.multiarray", "scalar"] = _scalar
    _ALLOWED[f"{_package}.numeric", "_frombuffer"] = _frombuffer


class _Unpickler(pickle._Unpickler):
    # The Python implementation: extension codes of the one in C bypass `find_class`.

    dispatch: ClassVar[dict] = dict(pickle._Unpickler.dispatch)
    # Arrays and containers need none of these, which call, too.
    for _opcode in (pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX):
        del dispatch[_opcode[0]]

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{_brief(module)}.{_brief(name)}")
        return _ALLOWED[module, name]

    def get_extension(self, code: int) -> Any:
        raise pickle.UnpicklingError(f"the extension code {code}")

    def load_build(self) -> None:
        # On other objects it would set attributes, even on this module's functions.
        if not isinstance(self.stack[-2], (_Array, _Dtype)):  # type: ignore[attr-defined]
            raise pickle.UnpicklingError("a state of something other than an array")
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build
