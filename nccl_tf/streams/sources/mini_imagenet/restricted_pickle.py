"""Reading untrusted pickles of NumPy arrays and plain containers, and nothing else.

A pickle is a program, and `pickle.load` lets it call any function. Here it can only call this
module's replacements for the few functions that a pickled array needs. They check their arguments,
because NumPy trusts the state of a pickled array or dtype. What a call or a state copies is counted
before it is made: references let a few bytes name the same long value again and again.
"""

import collections
import math
import os
import pickle
import reprlib
import sys
from collections.abc import Callable, Iterable, Sized
from typing import Any, BinaryIO, ClassVar

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular

_KINDS = "biufcSUO"  # No structured dtypes: their pickled state can claim a false layout.
_MAX_SPEC_LENGTH = 16
_MAX_RANK = 64
_MAX_INTEGER = 2**63 - 1
_MAX_BYTES = 2**33
_MAX_STEPS = 2**20
"""Opcodes and copied items; 60,000 labels take 60,000 to 1,020,030 of them."""
_MAX_COPIES = 4
"""Bytes that calls and states may copy, for each byte of the file."""


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
            return _Unpickler(_Bounded(file)).load()
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


def _check_keys(keys: Iterable[Any]) -> None:
    """Allow only names and integers as keys.

    Hashing a deeply nested tuple crashes Python, and many complex or long numbers have one hash.
    """
    for key in keys:
        plain = isinstance(key, (str, bytes, int, np.integer)) or key is None
        if not plain or (isinstance(key, int) and abs(key) > _MAX_INTEGER):
            raise pickle.UnpicklingError("a key that is no name or integer")


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


def _set(items: Any = ()) -> set:
    _check_keys(items)
    return set(items)


def _ordered_dict(pairs: Any = ()) -> collections.OrderedDict:
    result = collections.OrderedDict()
    for key, value in pairs:
        _check_keys([key])
        result[key] = value
    return result


def _no_bytes() -> bytes:
    return b""  # As in protocols below 3; `bytes` would allocate the size a file claims.


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
    """A file that refuses reads past its end before memory of the claimed size is allocated."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size

    def read(self, count: int) -> bytes:
        if count > self.size - self._file.tell():
            raise EOFError("the file ends too early")
        return self._file.read(count)

    def readline(self) -> bytes:
        return self._file.readline()


class _Counted(dict):
    """The functions of the opcodes; every look-up is counted."""

    left = _MAX_STEPS

    def __getitem__(self, opcode: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise pickle.UnpicklingError("more values than a data set has")
        return super().__getitem__(opcode)


class _Unpickler(pickle._Unpickler):
    # The Python implementation: the one in C makes its memo as large as an index in the file
    # claims, and its opcodes cannot be guarded.

    dispatch: ClassVar[dict] = dict(pickle._Unpickler.dispatch)
    # Arrays and containers need none of these, which call, too.
    for _opcode in (pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX):
        del dispatch[_opcode[0]]

    def __init__(self, file: _Bounded) -> None:
        super().__init__(file, encoding="latin1")
        self._steps = self.dispatch = _Counted(type(self).dispatch)  # type: ignore[misc]
        self._left = _MAX_COPIES * file.size

    def charge(self, values: Any) -> None:
        """Count the bytes that a call or a state of these arguments copies.

        Raises:
            pickle.UnpicklingError: It is more than a file of this size can need.
        """
        for value in values if isinstance(values, tuple) else ():
            if isinstance(value, (bytes, bytearray, str)):
                self._left -= len(value)
            elif isinstance(value, Sized):
                self._steps.left -= len(value)
        if self._left < 0:
            raise pickle.UnpicklingError("the same bytes in too many arrays")

    def get_extension(self, code: int) -> Any:
        # Extension codes depend on the process, and their cache bypasses `find_class`.
        raise pickle.UnpicklingError(f"the extension code {code}")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{_brief(module)}.{_brief(name)}")
        return _ALLOWED[module, name]


def _guard(opcode: bytes, check: Callable[[Any], None]) -> None:
    """Check the stack before an opcode runs; after a mark, the stack starts empty."""
    load = _Unpickler.dispatch[opcode[0]]

    def checked(unpickler: _Unpickler) -> None:
        check(unpickler)
        load(unpickler)

    _Unpickler.dispatch[opcode[0]] = checked


def _check_build(unpickler: Any) -> None:
    # On other objects it would set attributes, even on this module's functions.
    if not isinstance(unpickler.stack[-2], (_Array, _Dtype)):
        raise pickle.UnpicklingError("a state of something other than an array")
    unpickler.charge(unpickler.stack[-1])


def _load_put(unpickler: Any) -> None:
    # The original takes numbers of any length, and so many that have one hash.
    index = int(unpickler.readline()[:-1])
    if not 0 <= index < 2**32:
        raise pickle.UnpicklingError("a number that no reference has")
    unpickler.memo[index] = unpickler.stack[-1]


def _load_bytearray(unpickler: Any) -> None:
    # The original takes memory of the claimed size before it reads.
    size = int.from_bytes(unpickler.read(8), "little")
    unpickler.append(bytearray(unpickler.read(size)))


def _check_item(unpickler: Any) -> None:
    target, key, _ = unpickler.stack[-3:]
    _check_entries(target, [key])


def _check_entries(target: Any, keys: list) -> None:
    if not isinstance(target, dict):
        raise pickle.UnpicklingError("items of something other than a dictionary")
    _check_keys(keys)


_Unpickler.dispatch[pickle.PUT[0]] = _load_put
_Unpickler.dispatch[pickle.BYTEARRAY8[0]] = _load_bytearray
_guard(pickle.REDUCE, lambda u: u.charge(u.stack[-1]))
_guard(pickle.BUILD, _check_build)
_guard(pickle.SETITEM, _check_item)
_guard(pickle.SETITEMS, lambda u: _check_entries(u.metastack[-1][-1], u.stack[::2]))
_guard(pickle.DICT, lambda u: _check_keys(u.stack[::2]))
_guard(pickle.ADDITEMS, lambda u: _check_keys(u.stack))
_guard(pickle.FROZENSET, lambda u: _check_keys(u.stack))
