"""Reading untrusted pickles of NumPy arrays and plain containers, and nothing else.

A pickle is a program, and `pickle.load` lets it call any function. Here it can only call what a
pickled array needs, and an array is made of the bytes that the file holds, because NumPy trusts the
state that a file claims. A file is bounded by its size; what it builds from itself is not, so that
a hostile one can take time.
"""

import collections
import os
import pickle
import reprlib
from typing import Any, ClassVar

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.regular_files import open_regular

_KINDS = "biufSU"  # No objects, and no structured dtypes: their state can claim a false layout.
_MAX_SPEC_LENGTH = 16
_MAX_BYTES = 2**33


def load_pickle(path: str | os.PathLike) -> Any:
    """Read a pickle of NumPy arrays, scalars and plain containers.

    Files written by Python 2 are supported; their strings are decoded as latin1. Arrays may be of a
    subclass of `np.ndarray`; `np.asarray` converts them.

    Raises:
        UserError: The file cannot be opened, is larger than 8 GiB, is broken, or contains anything
            but arrays and plain containers.
    """
    try:
        with open_regular(path, _MAX_BYTES) as file:
            return _Unpickler(file, encoding="latin1").load()
    except OSError as error:
        raise UserError(
            f"cannot read {os.fspath(path)!r} ({error.strerror}): expected a readable pickle file"
        ) from error
    except Exception as error:  # A broken pickle can fail in any of its opcodes.
        is_refused = isinstance(error, pickle.UnpicklingError)
        raise UserError(
            f"refused the pickle {os.fspath(path)!r}, which is broken or holds "
            f"{error if is_refused else f'something else ({type(error).__name__})'}: expected "
            "NumPy arrays and plain containers only; get it again, or save it in that form"
        ) from error


class _Dtype:
    """A dtype during reading: type and byte order."""

    def __init__(self, spec: str, *options: Any) -> None:
        plausible = isinstance(spec, str) and len(spec) <= _MAX_SPEC_LENGTH
        if not plausible or np.dtype(spec).kind not in _KINDS:
            raise pickle.UnpicklingError("a dtype of neither numbers nor text")
        self.dtype = np.dtype(spec)

    def __setstate__(self, state: tuple) -> None:
        _, order, *layout = state[:5]
        if order not in ("<", ">", "=", "|") or layout != [None] * 3:
            raise pickle.UnpicklingError("a structured dtype")
        self.dtype = self.dtype.newbyteorder(order)


def _frombuffer(data: Any, dtype: _Dtype, shape: tuple[int, ...], order: str) -> np.ndarray:
    """An array on the bytes of the file: NumPy checks that they are as many as its shape says."""
    flat = np.frombuffer(_bytes(data), dtype.dtype)
    if flat.dtype.kind == "U":
        flat.tolist()  # Raises where there is no such character.
    return flat.reshape(shape, order=order)  # type: ignore[call-overload]


def _bytes(data: Any) -> Any:
    return data.encode("latin1") if isinstance(data, str) else data  # A Python 2 string.


class _Array(np.ndarray):
    """An array during reading: `__setstate__` takes the shape that the data have."""

    def __setstate__(self, state: tuple) -> None:
        _, shape, dtype, is_fortran, data = state
        shape = _frombuffer(data, dtype, shape, "C").shape
        super().__setstate__((1, shape, dtype.dtype, bool(is_fortran), _bytes(data)))  # type: ignore[arg-type]


def _reconstruct(kind: object, shape: tuple[int, ...], code: Any) -> np.ndarray:
    if kind is not _NDARRAY:
        raise pickle.UnpicklingError("an array of an unknown kind")
    return np.ndarray.__new__(_Array, (0,), np.int8)


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return _frombuffer(data, dtype, (), "C")[()]


def _encode(text: str, encoding: str) -> bytes:
    if not isinstance(encoding, str) or encoding != "latin1":
        raise pickle.UnpicklingError("another codec than latin1")
    return text.encode("latin1")


_NDARRAY = object()  # Only a marker: calling np.ndarray would allocate the size a file claims.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): collections.OrderedDict,
}
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
            raise pickle.UnpicklingError(reprlib.repr(f"{module}.{name}")[1:-1])
        return _ALLOWED[module, name]

    def get_extension(self, code: int) -> Any:
        raise pickle.UnpicklingError(f"the extension code {code}")

    def load_build(self) -> None:
        # On other objects it would set attributes, even on this module's functions.
        if not isinstance(self.stack[-2], (_Array, _Dtype)):  # type: ignore[attr-defined]
            raise pickle.UnpicklingError("a state of something other than an array")
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build
