"""Files of a run: atomic writes and locked folders."""

import contextlib
import errno
import logging
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.regular_files import open_regular
from nccl_tf.whole_files import TEMPORARY, replaced

_OUTPUT_DIR = "--output_dir"
_ADVICE = (
    "free space or choose another --output_dir; the same command resumes from the last checkpoint"
)
_LOCK_FILE = "lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What file systems say that lock no files."""


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

    The file `lock` in it is locked, and names the process. Whoever removes that file lets a second
    process in. Where the file system locks no files, a warning says so.

    Args:
        folder: The folder.
        chosen_by: The flag or argument that chose the folder, for the messages.

    Raises:
        UserError: The folder cannot be written, or another process has locked it, whose number the
            message has.
    """
    path = folder / _LOCK_FILE
    with translate_os_error(path, f"free space, remove it, or choose another {chosen_by}"):
        try:
            lock = _lock_or_warn(
                folder, "no second process runs in it", timeout=0, on_acquired=_note_process
            )
        except Timeout as error:
            raise UserError(
                f"process {_process_of(path)} is running in {folder}: wait for it "
                f"or stop it, or choose another {chosen_by}"
            ) from error
    with lock:
        yield


@contextmanager
def one_at_a_time(folder: Path, advice: str) -> Iterator[None]:
    """Wait for others that change files of a folder, and keep them out while the body does.

    Args:
        folder: Made where it is missing. The file `lock` in it is gone afterwards.
        advice: What to do where it cannot be used, for the message.

    Raises:
        UserError: It is no folder, or cannot be made or written.
    """
    with translate_os_error(f"into {folder}", advice):
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock_or_warn(folder, "no other command writes into it now", timeout=-1)
    with lock:
        try:
            yield
        finally:
            # Who waits for it looks whether it is still there. Windows keeps a file that is open.
            with contextlib.suppress(OSError):
                (folder / _LOCK_FILE).unlink()


def lock_of(
    folder: Path, timeout: float = 0, on_acquired: Callable[[int], None] | None = None
) -> FileLock:
    """Lock a folder for the rest of this process, or until any thread releases what it returns.

    Args:
        folder: The folder.
        timeout: Seconds to wait for another that holds it; -1 for ever.
        on_acquired: Gets the descriptor of the file that is locked.

    Raises:
        OSError: It is missing, or locked, or its file system locks no files.
    """
    folder.stat()  # A missing one is not made.
    path = folder / _LOCK_FILE
    # A number is written into no pipe; a link is not followed.
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    lock = FileLock(
        path, timeout, thread_local=False, fallback_to_soft=False, on_acquired=on_acquired
    )
    lock.acquire()
    return lock


def is_locked(folder: Path) -> bool:
    """Whether a process has locked a folder, or none can tell."""
    try:
        lock_of(folder).release()
    except OSError:
        return True
    return False


def _lock_or_warn(folder: Path, wanted: str, **how: Any) -> AbstractContextManager[Any]:
    """What holds a folder locked by `lock_of`, or holds nothing, with a warning, without locks."""
    try:
        return lock_of(folder, **how)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logging.getLogger("nccl_tf").warning(
            "%s cannot be locked (%s): see to it that %s", folder, error.strerror, wanted
        )
    return contextlib.nullcontext()


def _note_process(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())


def _process_of(path: Path) -> str:
    """The number that a lock file holds; Windows lets nobody read it."""
    try:
        with open_regular(path) as file:
            return file.read(32).decode(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"
