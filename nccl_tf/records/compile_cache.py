"""Programs that XLA compiled for a processor, kept on disk for the next process.

TensorFlow has a persistent cache, which it reads and writes without care: a damaged file ends the
run, and so does one that another process removes at the wrong time. So it works in a folder of this
process alone, of links to the programs that are kept. New ones are passed on when a run ends.

A kept program carries a checksum in its name, against damage, not against malice: whoever can write
into the folder can run code here.
"""

import atexit
import contextlib
import hashlib
import logging
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.machine import count_cores, threads_of_environment
from nccl_tf.records.files import is_locked, lock_of, one_at_a_time
from nccl_tf.records.provenance import variables_that_decide_bits
from nccl_tf.whole_files import replaced

LOGGER = logging.getLogger("nccl_tf")
MOST_BYTES = 256 * 2**20
"""Of all kept programs; the oldest go first. One of a dense network takes some 100 kB."""
OFF = "off"
_FLAGS = "TF_XLA_FLAGS"
_KEPT = re.compile(r"([0-9a-f]{8})-([\w.-]+\.pb)")
_FOLDERS, _OWN = f"xla-{16 * '[0-9a-f]'}", "process-"
"""Names of folders, of which alone files are removed: the root may hold a user's own."""
_ADVICE = "choose another folder for compiled programs"


class _Kept:
    """The folder of kept programs, and that of this process.

    Args:
        root: Of programs of all processors and versions.
        key: Names those that this process can run.

    Raises:
        OSError, UserError: The folder cannot be used.
    """

    def __init__(self, root: Path, key: str) -> None:
        self.root, self._pid = root, os.getpid()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(root)
        if shutil.disk_usage(root).free < MOST_BYTES:
            raise OSError(f"fewer than {MOST_BYTES} bytes are free")
        self._folder = root / key
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _check_ours(self._folder)
        self._folder.chmod(0o700)
        with one_at_a_time(root, _ADVICE):
            self._sweep()
            self.own = Path(tempfile.mkdtemp(prefix=_OWN, dir=self._folder))
            self._held = lock_of(self.own)
            self._take_in()
        self._known = {path.name for path in self.own.iterdir()}
        atexit.register(self._close)

    def publish(self) -> int:
        """Pass on the programs that are new since the last call, and return their number."""
        new = [path for path in self.own.glob("*.pb") if path.name not in self._known]
        self._known |= {path.name for path in new}
        try:
            for path in new:
                kept = self._folder / f"{_checksum(path.name, path)}-{path.name}"
                with contextlib.suppress(FileExistsError):  # Another process had the same one.
                    _link(path, kept)
            if new:
                self._bound()
        except OSError as error:
            LOGGER.warning("compiled programs are not kept in %s (%s)", self.root, error)
        return len(new)

    def _take_in(self) -> None:
        """Link the whole programs of this key, the newest of each name; remove all else."""
        for path in sorted(_files(self._folder), key=_age):
            found = _KEPT.fullmatch(path.name)
            with contextlib.suppress(FileNotFoundError):  # The bound has removed it meanwhile.
                is_small = path.lstat().st_size <= MOST_BYTES  # a larger one is none of ours
                if found and is_small and found[1] == _checksum(found[2], path):
                    try:
                        _link(path, self.own / found[2])
                        continue
                    except FileExistsError:
                        pass
                path.unlink()

    def _sweep(self) -> None:
        """Remove the folders of processes that were killed."""
        for folder in self.root.glob(f"{_FOLDERS}/{_OWN}*"):
            if not is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)

    def _bound(self) -> None:
        total = 0
        kept = (path for folder in self.root.glob(_FOLDERS) for path in _files(folder))
        for path in sorted(kept, key=_age):
            with contextlib.suppress(FileNotFoundError):
                total += path.lstat().st_size
                if total > MOST_BYTES:
                    path.unlink()

    def _close(self) -> None:
        atexit.unregister(self._close)
        if os.getpid() == self._pid:  # and not one that was forked
            self.publish()
            shutil.rmtree(self.own, ignore_errors=True)
            self._held.release()


_kept: _Kept | None = None
"""That of this process, which TensorFlow takes once."""


def use_compile_cache(folder: str | Path | None = None) -> Path | None:
    """Keep the programs that XLA compiles for a processor, and use those of earlier processes.

    Bits stay the same. A program serves one TensorFlow, processor and number of threads, whatever
    the seed, and needs the same graphs before it. Call it after TensorFlow's threads are set,
    before its first operation; it may be imported already.

    Args:
        folder: Made where it is missing, with mode 0700: whoever can write into it can run code in
            your processes. By default `nccl_tf` in `XDG_CACHE_HOME`, or in `~/.cache`.

    Returns:
        The folder; None where programs cannot be kept in it, as a line of the log says, or where
        `TF_XLA_FLAGS` names a cache already.

    Raises:
        UserError: TensorFlow runs already.

    Example:
        >>> import nccl_tf
        >>> nccl_tf.use_compile_cache()

    """
    global _kept
    import tensorflow as tf

    if _kept is not None and (folder is None or Path(folder).absolute() == _kept.root):
        return _kept.root
    if _runs():
        raise UserError(
            f"received {folder or 'the default'} as the folder of compiled programs: TensorFlow "
            "runs in this process already; call use_compile_cache before its first operation, or "
            "leave it out"
        )
    given = os.environ.get(_FLAGS, "")
    if "--tf_xla_persistent_cache_directory" in given:
        return None
    try:
        root = Path(folder).absolute() if folder else default_folder()
        kept = _Kept(root, _key(_asked_threads()))
    except (OSError, RuntimeError, UserError) as error:
        LOGGER.warning("compiled programs are not kept (%s)", error)
        return None
    _kept = kept
    # A GPU's programs are left out: they depend on its driver too.
    words = (
        f"--tf_xla_persistent_cache_directory={_quoted(kept.own)}",
        "--tf_xla_persistent_cache_device_types=CPU",
    )
    os.environ[_FLAGS] = " ".join((given, *words)).strip()
    try:
        tf.config.list_physical_devices()  # which reads the flags, once
    finally:
        # The folder is no part of what a child inherits, and of what decides bits.
        del os.environ[_FLAGS]
        if given:
            os.environ[_FLAGS] = given
    return kept.root


def publish(compiled: bool) -> str | None:
    """Pass on new programs, and tell how the cache served a run that has ended.

    Args:
        compiled: Whether XLA compiled steps of the run.

    Returns:
        "hit" where every program came from the cache, "miss" where one was compiled, None where
        there was no cache, or nothing to compile.
    """
    if _kept is None:
        return None
    new = _kept.publish()
    return ("miss" if new else "hit") if compiled else None


def default_folder() -> Path:
    """The user's folder of compiled programs (XDG Base Directory Specification).

    Raises:
        RuntimeError: The user has no home.
    """
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".cache") / "nccl_tf"


def _key(threads: int) -> str:
    """All that a compiled program depends on beside its steps, as the name of a folder."""
    parts = (
        *sorted(f"{d.name} {d.version}" for d in metadata.distributions(name="tensorflow")),
        *sorted(f"{d.name} {d.version}" for d in metadata.distributions(name="tensorflow-cpu")),
        platform.platform(), platform.machine(), _processor(), str(count_cores()),
        str(threads),
        *(f"{name}={value}" for name, value in sorted(variables_that_decide_bits().items())),
    )  # fmt: skip
    return f"xla-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"


def _processor() -> str:
    """The model of the processor and its instructions."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    except (OSError, UnicodeDecodeError):  # no Linux
        return platform.processor()
    lines = re.findall(r"^(model name|flags|Features|CPU \w+)\s*:(.*)$", first, re.MULTILINE)
    return "\n".join(map("".join, lines))


def _quoted(path: Path) -> str:
    """A path as flags of TensorFlow take it, which end at a blank."""
    return '"' + re.sub(r'(["\\])', r"\\\1", str(path)) + '"'


def _runs() -> bool:
    """Whether TensorFlow has looked for its devices, and with them read its flags."""
    return _of_context("_initialized") or _of_context("_physical_devices") is not None


def _asked_threads() -> int:
    return _of_context("_intra_op_parallelism_threads") or threads_of_environment()


def _of_context(name: str) -> Any:
    """A setting that TensorFlow's public functions do not tell without reading its flags."""
    return getattr(sys.modules["tensorflow.python.eager.context"].context_safe(), name, None)


def _check_ours(folder: Path) -> None:
    found = folder.lstat()
    owned = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not owned or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder} is not a folder that you alone can write: chmod 700")


def _files(folder: Path) -> Iterator[Path]:
    """The files of a folder that are no links."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        yield from (Path(e.path) for e in entries if e.is_file(follow_symlinks=False))


def _age(path: Path) -> float:
    """The newest first."""
    try:
        return -path.lstat().st_mtime
    except FileNotFoundError:
        return 0.0


def _checksum(name: str, path: Path) -> str:
    return f"{zlib.crc32(path.read_bytes(), zlib.crc32(name.encode())):08x}"


def _link(path: Path, to: Path) -> None:
    """Give a whole file a second name, at once.

    Raises:
        FileExistsError: There is a file of that name.
    """
    try:
        os.link(path, to)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links.
        if to.exists():
            raise FileExistsError(to) from None
        with replaced(to) as temporary:
            shutil.copyfile(path, temporary)
