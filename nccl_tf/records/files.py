"""Files of a run: atomic writes and locked folders."""

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nccl_tf.errors import UserError, translate_os_error

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]
from nccl_tf.whole_files import TEMPORARY, replaced

_OUTPUT_DIR = "--output_dir"
_ADVICE = (
    "free space or choose another --output_dir; the same command resumes from the last checkpoint"
)
_LOCK_FILE = "lock"
_HELD_BY_ANOTHER = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)


def write_file(path: Path, content: bytes, advice: str = _ADVICE) -> None:
    """Write `content` to `path` by way of `replaced`.

    Args:
        path: The file; an older one is replaced, or a link, whose target is left as it is. A
            missing folder is made.
        content: All of it.
        advice: What to do where it cannot be written, for the message.

    Raises:
        UserError: The file cannot be written (disk full, folder missing or read-only). An existing
            file is then unchanged, and no temporary file remains.
    """
    with translate_os_error(path, advice):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(path) as temporary:
            temporary.write_bytes(content)


def remove(path: Path) -> None:
    """Remove a file or an empty folder; where that is refused, it is left with a warning."""
    try:
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    except OSError as error:
        logging.getLogger("nccl_tf").warning("cannot remove %s (%s)", path, error.strerror)


def remove_left_over(folder: Path, chosen_by: str = _OUTPUT_DIR) -> None:
    """Remove the temporary files that killed processes left in a folder, which is locked.

    Args:
        folder: The folder.
        chosen_by: As for `lock_folder`.

    Raises:
        UserError: It cannot be listed.
    """
    for name in list_names(folder, chosen_by):
        if TEMPORARY in name:
            remove(folder / name)


def check_no_links(folder: Path, root: Path, chosen_by: str = _OUTPUT_DIR) -> None:
    """Check that no folder on the way from `root`, which may be a link, to a folder below is one.

    It leads to files of somebody else, which a run would overwrite and remove.

    Args:
        folder: The folder, which may be missing; one that is not below `root` is not looked at.
        root: What the user chose.
        chosen_by: As for `lock_folder`.

    Raises:
        UserError: One of them is a link.
    """
    if not folder.is_relative_to(root):
        return
    while folder != root:
        if folder.is_symlink():
            raise UserError(
                f"{folder} is a link: expected a folder of a run, which writes and removes files "
                f"in it; move what it leads to there, or choose another {chosen_by}"
            )
        folder = folder.parent


def list_names(folder: Path, chosen_by: str = _OUTPUT_DIR) -> list[str]:
    """The sorted names in a folder; none where it is missing.

    Args:
        folder: The folder.
        chosen_by: As for `lock_folder`.

    Raises:
        UserError: It cannot be listed.
    """
    try:
        return sorted(entry.name for entry in os.scandir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(
            f"cannot list {folder} ({error.strerror}): expected a folder of a run; change its "
            f"permissions, or choose another {chosen_by}"
        ) from error


@contextmanager
def lock_folder(folder: Path, chosen_by: str = _OUTPUT_DIR) -> Iterator[None]:
    """Lock a folder while the body runs; the operating system unlocks it if the process dies.

    The folder itself is locked, so that nothing changes where the file `lock` in it, which names
    the process, is removed. That file is locked too, for file systems that lock no folders. Where
    the file system locks neither, a warning says so.

    Args:
        folder: The folder.
        chosen_by: The flag or argument that chose the folder, for the messages.

    Raises:
        UserError: The folder cannot be written, another process has locked it, whose number the
            message has, or the system has no such locks.
    """
    _check_system(folder)
    path = folder / _LOCK_FILE
    with contextlib.ExitStack() as opened:
        with translate_os_error(path, f"remove it, or choose another {chosen_by}"):
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, held)
            # The number is not written into what a link names, and a pipe is not waited for.
            noted = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            opened.callback(os.close, noted)
            if not stat.S_ISREG(os.fstat(noted).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            holder = os.read(noted, 32).decode(errors="replace").strip() or "unknown"
        problems = [_lock(descriptor) for descriptor in (held, noted)]
        if any(problem in _HELD_BY_ANOTHER for problem in problems):
            raise UserError(
                f"process {holder} is running in {folder}: wait for it "
                f"or stop it, or choose another {chosen_by}"
            )
        if all(problems):
            logging.getLogger("nccl_tf").warning(
                "%s cannot be locked (%s): see to it that no second process runs in it",
                folder, os.strerror(problems[0]),
            )  # fmt: skip
        with translate_os_error(path, f"free space, or choose another {chosen_by}"):
            os.ftruncate(noted, 0)
            os.pwrite(noted, f"{os.getpid()}\n".encode(), 0)
        yield


@contextmanager
def one_at_a_time(folder: Path, advice: str) -> Iterator[None]:
    """Wait for others that change files of a folder, and keep them out while the body does.

    Args:
        folder: Made where it is missing. It is locked itself, so that no lock is left in it.
        advice: What to do where it cannot be used, for the message.

    Raises:
        UserError: It is no folder, cannot be made, or the system has no such locks.
    """
    _check_system(folder)
    with contextlib.ExitStack() as opened:
        with translate_os_error(f"into {folder}", advice):
            folder.mkdir(parents=True, exist_ok=True)
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            opened.callback(os.close, held)
        problem = _lock(held, waits=True)
        if problem:
            logging.getLogger("nccl_tf").warning(
                "%s cannot be locked (%s): see to it that no other command writes into it now",
                folder, os.strerror(problem),
            )  # fmt: skip
        yield


def lock_of(folder: Path) -> int:
    """Lock a folder for the rest of this process, or until the descriptor that it returns closes.

    Raises:
        OSError: It is missing, or locked.
    """
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    if problem := _lock(held):
        os.close(held)
        raise OSError(problem, os.strerror(problem))
    return held


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a folder, or none can tell."""
    try:
        os.close(lock_of(folder))
    except OSError:
        return True
    return False


def _check_system(folder: Path) -> None:
    if fcntl is None:
        raise UserError(
            f"cannot lock {folder}: expected Linux, macOS or WSL, which lock folders; use one of "
            "them, or nccl_tf.learn without backup_dir"
        )


def _lock(descriptor: int, waits: bool = False) -> int:
    """Lock what is open, and return 0 or the number of the error."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
    except OSError as error:
        return error.errno or errno.EIO
    return 0
