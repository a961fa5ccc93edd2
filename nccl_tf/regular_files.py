"""Opens untrusted files: only regular ones, of a bounded size."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader

# Windows has no pipes among its files, and reads text unless it is told.
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def open_regular(path: str | os.PathLike, max_bytes: int | None = None) -> Iterator[BufferedReader]:
    """Open a regular file for reading, without waiting for a pipe or a device.

    Args:
        path: The file.
        max_bytes: The largest size; None for any.

    Raises:
        OSError: It cannot be opened, is not regular, is larger, or has bytes where it claims none,
            as files in /proc do; `strerror` says so.
    """
    with contextlib.ExitStack() as opened:
        descriptor = os.open(path, os.O_RDONLY | _FLAGS)
        opened.callback(os.close, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file but a folder, pipe or device", path)
        if max_bytes is not None and status.st_size > max_bytes:
            sizes = f"it has {status.st_size:,} bytes, {max_bytes:,} at most are read"
            raise OSError(errno.EFBIG, sizes, path)
        # Files of the system claim none, and some of them never end: pagemap, kmsg.
        if not status.st_size and os.read(descriptor, 1):
            raise OSError(errno.EINVAL, "it has more bytes than it claims", path)
        yield opened.enter_context(os.fdopen(descriptor, "rb", closefd=False))


def read_regular(path: str | os.PathLike, max_bytes: int) -> bytes:
    """Read a regular file, as `open_regular` opens it; what is appended meanwhile is left."""
    with open_regular(path, max_bytes) as file:
        return file.read(os.fstat(file.fileno()).st_size)
