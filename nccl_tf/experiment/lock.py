"""A lock on a run's folder that dies with the process that holds it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nccl_tf.errors import UserError, writing

FILE_NAME = "lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder while the body runs. The operating system lets go when the process ends.

    Raises:
        UserError: The folder cannot be written, or another process holds it; the message names
            that process.
    """
    path = folder / FILE_NAME
    with writing(path, "choose another --output_dir"):
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
