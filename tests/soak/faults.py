"""What befalls a run: at a file operation of its own, after some time, or between two runs.

A moment is the k-th time that a run opens, renames, makes, lists or removes something in its
folder: the same moment whenever a case is run again.
"""

import contextlib
import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
_EVENTS = ("open", "os.rename", "os.remove", "os.mkdir", "os.scandir", "os.rmdir", "os.truncate")
_FILLER = "filler"
PAGE = 4096


class Moment:
    """An audit hook that does something at the k-th operation on files below a folder.

    Args:
        folder: The folder.
        number: The k; from 1.
        strike: What it does.
    """

    def __init__(self, folder: Path, number: int, strike: Callable[[], None]):
        self._prefix, self._left, self._strike = str(folder), number, strike

    def __call__(self, event: str, arguments: tuple) -> None:
        if event not in _EVENTS or self._left <= 0:
            return
        path = arguments[0] if arguments else None
        if not isinstance(path, (str, Path)) or not str(path).startswith(self._prefix):
            return
        self._left -= 1
        if not self._left:
            self._strike()


def send(*numbers: int) -> None:
    """Send signals to this process."""
    for number in numbers:
        os.kill(os.getpid(), number)


def fill_disk(disk: Path, left: int) -> None:
    """Take the room of a file system, but for so many bytes."""
    size = os.statvfs(disk).f_bavail * PAGE - left
    with contextlib.suppress(OSError), (disk / _FILLER).open("wb", buffering=0) as file:
        file.write(bytes(max(size, 0)))


def take_inodes(disk: Path, left: int) -> None:
    """Make files on a file system until so many more can be made."""
    folder = disk / (_FILLER + "s")
    folder.mkdir()
    for number in range(os.statvfs(disk).f_favail - left):
        try:
            (folder / str(number)).touch()
        except OSError:
            break


def make_room(disk: Path) -> None:
    """Take back what `fill_disk` and `take_inodes` did."""
    (disk / _FILLER).unlink(missing_ok=True)
    shutil.rmtree(disk / (_FILLER + "s"), ignore_errors=True)


def limit_files(size: int) -> None:
    """Let this process write no file beyond a size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def remove(path: Path) -> None:
    """Remove a file or a whole folder, if it is there."""
    try:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError as error:
        assert error.errno in (errno.ENOENT, errno.ENOTEMPTY), error  # The run removed it itself.


def checkpoints(seed_folder: Path) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    return sorted((seed_folder / "checkpoints").glob("*.checkpoint"))


def flip_bit(path: Path, random: np.random.Generator) -> None:
    """Change a bit of a file."""
    content = bytearray(path.read_bytes())
    content[random.integers(len(content))] ^= 1 << random.integers(8)
    path.write_bytes(content)
