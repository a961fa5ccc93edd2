"""Files that a reader finds whole or not at all, whatever happens to the writer."""

import contextlib
import os
import tempfile
from pathlib import Path

from nccl_tf.errors import writing

_ADVICE = (
    "make room or choose another --output_dir; the same command goes on from the last checkpoint"
)


def write_file(path: Path, content: bytes) -> None:
    """Write `content` to `path`: temporary file beside it, fsync, rename, fsync of the folder.

    Args:
        path: The file; an older one is replaced, a missing folder is made.
        content: All of it.

    Raises:
        UserError: The file cannot be written (disk full, folder gone or read-only). An older file
            is then untouched, and nothing is left behind.
    """
    with writing(path, _ADVICE):
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
