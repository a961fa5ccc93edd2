"""Writes files so that a reader, and a full disk, find the old one or the new one, never a part."""

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEMPORARY = ".nccl_tf.tmp"
"""In the names of temporary files, by which those of killed writers are found."""


@contextmanager
def replaced(path: Path, ending: str = "") -> Iterator[Path]:
    """A temporary file beside `path`, which the body writes, and which then takes its place.

    Temporary file, fsync, rename, fsync of the folder. The mode of a file that is there is kept; a
    link is replaced, and its target is left as it is.

    Args:
        path: The file; its folder exists.
        ending: Of the temporary file's name, for a body that looks at it.

    Raises:
        OSError: The file cannot be written. One that was there is unchanged then, as after an error
            of the body, and no temporary file remains.
    """
    descriptor, name = tempfile.mkstemp(f"{TEMPORARY}{ending}", f"{path.name}.", path.parent)
    os.close(descriptor)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        with contextlib.suppress(PermissionError):  # Some file systems know no modes.
            temporary.chmod(_mode(path))
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _mode(path: Path) -> int:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0o644
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else 0o644
