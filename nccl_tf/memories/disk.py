"""Inputs of a memory in a file: the host reads and writes rows between calls of a graph.

A graph neither reads nor writes the file. Traced inside of `DiskInputs.exchange`, it takes the rows
that it reads as a tensor, and leaves those that it writes; the slots of both are known to the host
before and after the call (`learner.fitting.disk_loop`). Eager code reads and writes at once.
"""

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.errors import UserError, translate_os_error


class Exchange:
    """What a graph reads and writes of the inputs of a memory, noted while it is traced.

    Args:
        fetched: The rows that it reads, a tensor [n, ...] for each input; None where the graph is
            to say only which they are.

    Attributes:
        slots: int32 [n], which it reads.
        written: Slots int32 [m] and rows [m, ...] of each input, which it writes.
    """

    def __init__(self, fetched: Sequence[tf.Tensor] | None):
        self.fetched = fetched
        self.slots: Any = None
        self.written: Any = None


class DiskInputs:
    """Slots of inputs in files without a name, which are gone when the process ends.

    The files are sparse: a slot takes room on the disk once it has been written.

    Args:
        forms: dtype and shape of each input of an example.
        slots: Number of slots.
        folder: Where the files are.

    Raises:
        UserError: There is no such folder, it cannot be written, its disk has too little room, or
            an input is of strings.
    """

    def __init__(self, forms: Sequence[tf.TensorSpec], slots: int, folder: str):
        if not os.path.isdir(folder):  # also where no path can be so
            raise UserError(
                f"received memory_dir={folder!r}, which is no folder: make it first, or name "
                "another one"
            )
        if any(form.dtype == tf.string for form in forms):
            raise UserError(
                f"received memory_dir={folder!r} for inputs of strings, whose lengths differ: "
                "leave memory_dir out, or turn text into numbers before fit"
            )
        self._dtypes = [np.dtype(form.dtype.as_numpy_dtype) for form in forms]
        self._shapes = [tuple(form.shape.as_list()) for form in forms]
        self._sizes = [
            math.prod(shape) * dtype.itemsize
            for shape, dtype in zip(self._shapes, self._dtypes, strict=True)
        ]
        self._folder = folder
        with translate_os_error(f"memory_dir={folder}", "name a folder that can be written"):
            # Plain reads and writes, no mapping: a full disk is then an error and no signal, and
            # pages that were read do not count as memory of the process.
            make = tempfile.TemporaryFile
            self._files = [make(dir=folder, buffering=0) for _ in forms]
        self.resize(slots)
        self._exchange: Exchange | None = None

    def resize(self, slots: int) -> None:
        """Have so many slots, none fewer than before."""
        needed, free = slots * sum(self._sizes), shutil.disk_usage(self._folder).free
        if needed > free:
            raise UserError(
                f"received memory_dir={self._folder!r}, whose disk has {free / 1e9:,.1f} GB free, "
                f"for a memory of up to {needed / 1e9:,.1f} GB: lower the number of slots, or name "
                "a folder on a larger disk"
            )
        with translate_os_error(f"memory_dir={self._folder}", "name a folder on another disk"):
            for file, size in zip(self._files, self._sizes, strict=True):
                os.truncate(file.fileno(), slots * size)

    @contextmanager
    def exchange(self, fetched: Sequence[tf.Tensor] | None = None) -> Iterator[Exchange]:
        """What a graph that is traced inside reads and writes."""
        self._exchange = Exchange(fetched)
        try:
            yield self._exchange
        finally:
            self._exchange = None

    def rows(self, slots: tf.Tensor) -> list[tf.Tensor]:
        """The contents of slots (int32 [n]), [n, ...] for each input.

        Raises:
            UserError: A graph reads them otherwise than ahead of its steps.
        """
        if tf.executing_eagerly():
            return [tf.constant(rows) for rows in self.fetch(np.asarray(slots))]
        exchange = self._exchange
        if exchange is None or exchange.slots is not None:
            raise UserError(
                "received a memory with memory_dir, whose examples lie in a file, where a step "
                "reads more than one batch that is drawn ahead: leave memory_dir out"
            )
        exchange.slots = slots
        if exchange.fetched is not None:
            return list(exchange.fetched)
        sides = zip(self._shapes, self._dtypes, strict=True)
        return [tf.zeros([tf.size(slots), *shape], dtype) for shape, dtype in sides]

    def place(self, slots: tf.Tensor, parts: Sequence[tf.Tensor]) -> None:
        """Write rows [n, ...] of each input into slots (int32 [n]); the number of slots is none."""
        if tf.executing_eagerly():
            self.store(np.asarray(slots), [np.asarray(part) for part in parts])
        elif self._exchange is None or self._exchange.written is not None:
            raise UserError(
                "received a memory with memory_dir, whose examples lie in a file, where a step "
                "writes otherwise than after the last one of a call: leave memory_dir out"
            )
        else:
            self._exchange.written = slots, list(parts)

    def fetch(self, slots: np.ndarray) -> list[np.ndarray]:
        """Read slots (integers [n]): [n, ...] for each input, zeros where nothing was written."""
        fetched = []
        columns = zip(self._files, self._sizes, self._shapes, self._dtypes, strict=True)
        for file, size, shape, dtype in columns:
            raw, number = np.empty((len(slots), size), np.uint8), file.fileno()
            for row, slot in zip(raw, slots.tolist(), strict=True):
                os.preadv(number, [row], slot * size)
            fetched.append(raw.view(dtype).reshape(len(slots), *shape))
        return fetched

    def store(self, slots: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Write rows [n, ...] of each input into slots (integers [n]).

        Raises:
            UserError: The disk is full.
        """
        advice = "make room on the disk, or name another folder"
        with translate_os_error(f"memory_dir={self._folder}", advice):
            for file, size, rows in zip(self._files, self._sizes, parts, strict=True):
                raw = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), size)
                for row, slot in zip(raw, slots.tolist(), strict=True):
                    os.pwrite(file.fileno(), row.data, slot * size)
