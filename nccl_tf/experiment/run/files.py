"""Atomic writes and folder locks."""

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nccl_tf.errors import UserError, translate_os_error

_ADVICE = (
    "free space or choose another --output_dir; the same command resumes from the last checkpoint"
)
_LOCK_FILE = "lock"


def write_file(path: Path, content: bytes, advice: str = _ADVICE) -> None:
    """Write `content` to `path`: temporary file beside it, fsync, rename, fsync of the folder.

    Args:
        path: The file; an older one is replaced, a missing folder is made.
        content: All of it.
        advice: What to do where it cannot be written, for the message.

    Raises:
        UserError: The file cannot be written (disk full, folder missing or read-only). An existing
            file is then unchanged, and no temporary file remains.
    """
    with translate_os_error(path, advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder while the body runs; the operating system unlocks it if the process dies.

    Raises:
        UserError: The folder cannot be written, or another process has locked it; the message names
            the process.
    """
    path = folder / _LOCK_FILE
    with translate_os_error(path, "choose another --output_dir"):
        file = path.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise UserError(
                f"process {holder} is running in {folder}: wait for it or stop it, or choose "
                "another seed or --output_dir"
            ) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
