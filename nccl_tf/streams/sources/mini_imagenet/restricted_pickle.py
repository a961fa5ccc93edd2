"""Reading pickles of arrays from strangers: NumPy arrays and plain containers, nothing else.

A pickle is a program, and `pickle.load` runs it with every function there is. Here the functions
it may call are this module's stand-ins for the handful that a pickled array needs. They check what
they are given before NumPy sees it, because NumPy trusts the state of a pickled array or dtype.
"""

import collections
import math
import os
import pickle
import stat
import sys
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, ClassVar

import numpy as np

from nccl_tf.errors import UserError

_KINDS = "biufcSUO"  # Structured dtypes are left out: their pickled state can lie about its layout.
_LONGEST_SPEC = 16
_MOST_SIDES = 64
_LARGEST = 2**63 - 1


def _check_keys(keys: Iterable[Any]) -> None:
    """Let names and numbers be hashed only: hashing a tuple nested deeply enough ends Python."""
    for key in keys:
        plain = isinstance(key, (str, bytes, float, int, np.generic)) or key is None
        if not plain or (isinstance(key, int) and abs(key) > _LARGEST):
            raise pickle.UnpicklingError("a key that is no name or number")


class _Dtype:
    """A dtype while it is being read: type and byte order."""

    def __init__(self, spec: str, align: Any = False, copy: Any = True) -> None:
        known = isinstance(spec, str) and len(spec) <= _LONGEST_SPEC
        self.dtype = np.dtype(spec) if known else None
        if self.dtype is None or self.dtype.kind not in _KINDS:
            raise pickle.UnpicklingError(f"dtype {spec!r}")

    def __setstate__(self, state: tuple) -> None:
        _, order, subdtype, names, fields = state[:5]
        if subdtype is not None or names is not None or fields is not None:
            raise pickle.UnpicklingError("a structured dtype")
        self.dtype = self.dtype.newbyteorder(order)


class _Array(np.ndarray):
    """An array while it is being read: `__setstate__` checks the state that the file claims."""

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, is_fortran, data = state
        checked: Any = (1, shape, dtype.dtype, bool(is_fortran), _check_data(shape, dtype, data))
        super().__setstate__(checked)


def _check_data(shape: tuple[int, ...], dtype: _Dtype, data: Any) -> Any:
    """The raw data, if they are exactly as many as the shape says."""
    if isinstance(data, str):  # A Python 2 string.
        data = data.encode("latin1")
    whole = all(isinstance(side, int) and 0 <= side <= _LARGEST for side in shape)
    if not isinstance(shape, tuple) or len(shape) > _MOST_SIDES or not whole:
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


_NDARRAY = object()  # Only a name for `_reconstruct`; calling it would allocate what a file claims.


def _reconstruct(kind: object, shape: tuple[int, ...], code: Any) -> np.ndarray:
    if kind is not _NDARRAY or tuple(shape) != (0,):
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.ndarray.__new__(_Array, (0,), np.int8)


def _frombuffer(data: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    flat = np.frombuffer(_check_data(shape, dtype, data), dtype.dtype)
    return flat.reshape(shape, order=order)  # type: ignore[call-overload]


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return np.frombuffer(_check_data((), dtype, data), dtype.dtype)[0]


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the codec {encoding!r}")
    return text.encode("latin1")


def _set(items: Iterable[Any] = ()) -> set:
    _check_keys(items)
    return set(items)


def _ordered_dict(pairs: Iterable[Any] = ()) -> collections.OrderedDict:
    result = collections.OrderedDict()
    for key, value in pairs:
        _check_keys([key])
        result[key] = value
    return result


def _no_bytes() -> bytes:
    return b""  # How protocols below 3 spell it; `bytes` itself would allocate what a file claims.


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): _ordered_dict,
}
for _package in ("builtins", "__builtin__"):
    _ALLOWED[_package, "set"] = _set
    _ALLOWED[_package, "bytes"] = _no_bytes
for _package in ("numpy.core", "numpy._core"):
    _ALLOWED[f"{_package}.multiarray", "_reconstruct"] = _reconstruct
    _ALLOWED[f"{_package}.multiarray", "scalar"] = _scalar
    _ALLOWED[f"{_package}.numeric", "_frombuffer"] = _frombuffer


class _Bounded:
    """A file that refuses to read past its end, before memory is set aside for what it claims."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = os.fstat(file.fileno()).st_size

    def read(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise EOFError("the file ends too early")
        return self._file.read(count)

    def readline(self) -> bytes:
        return self._file.readline()

    def readinto(self, buffer: bytearray) -> int:
        buffer[:] = self.read(len(buffer))
        return len(buffer)


class _Unpickler(pickle._Unpickler):
    # The one written in Python: the one in C makes its memo as large as a file's index claims, and
    # its opcodes cannot be guarded.

    dispatch: ClassVar[dict] = dict(pickle._Unpickler.dispatch)

    def get_extension(self, code: int) -> Any:
        # What stands behind a code is up to the process, and may be cached past `find_class`.
        raise pickle.UnpicklingError(f"the extension code {code}")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return _ALLOWED[module, name]


def _guard(opcode: bytes, check: Callable[[Any], None]) -> None:
    """Check the stack before an opcode of the unpickler runs; above a mark, the stack is new."""
    load = _Unpickler.dispatch[opcode[0]]

    def checked(unpickler: _Unpickler) -> None:
        check(unpickler)
        load(unpickler)

    _Unpickler.dispatch[opcode[0]] = checked


def _check_build(unpickler: Any) -> None:
    # On anything else it would set attributes, those of this module's functions too.
    if not isinstance(unpickler.stack[-2], (_Array, _Dtype)):
        raise pickle.UnpicklingError("a state of something else than an array")


def _check_item(unpickler: Any) -> None:
    target, key, _ = unpickler.stack[-3:]
    _check_entries(target, [key])


def _check_entries(target: Any, keys: list) -> None:
    if not isinstance(target, dict):
        raise pickle.UnpicklingError("items of something else than a dictionary")
    _check_keys(keys)


_guard(pickle.BUILD, _check_build)
_guard(pickle.SETITEM, _check_item)
_guard(pickle.SETITEMS, lambda u: _check_entries(u.metastack[-1][-1], u.stack[::2]))
_guard(pickle.DICT, lambda u: _check_keys(u.stack[::2]))
_guard(pickle.ADDITEMS, lambda u: _check_keys(u.stack))
_guard(pickle.FROZENSET, lambda u: _check_keys(u.stack))


def load_pickle(path: str | os.PathLike) -> Any:
    """Read a pickle of NumPy arrays, dtypes, scalars and plain containers.

    Files written by Python 2 are read too, their strings as latin1. Arrays may come back as a
    subclass of `np.ndarray`; `np.asarray` makes plain ones of them.

    Raises:
        UserError: The file cannot be opened, is broken, or asks for anything but arrays and plain
            containers.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise pickle.UnpicklingError("no file but a device, pipe or folder")
        with open(path, "rb") as file:
            return _Unpickler(_Bounded(file), encoding="latin1").load()
    except OSError as error:
        raise UserError(
            f"cannot read {os.fspath(path)!r} ({error.strerror}): expected a readable pickle file"
        ) from error
    except pickle.UnpicklingError as error:
        raise UserError(
            f"refused the pickle {os.fspath(path)!r}, which is broken or holds {error}: expected "
            f"NumPy arrays and plain containers only; save it again as such"
        ) from error
    except Exception as error:  # A broken pickle can fail in any of its opcodes.
        raise UserError(
            f"the pickle {os.fspath(path)!r} is broken ({type(error).__name__}): expected NumPy "
            f"arrays and plain containers; get the file again"
        ) from error
