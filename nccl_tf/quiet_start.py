"""TensorFlow's start without its messages: they come before its own levels of logging hold."""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2
_NOISE = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|To enable the following instructions: "
    rb"|[IWE]\d{4} [\d:.]+ +\d+ [\w./-]+\.cc:\d+\]"
)

_shown = _STDERR  # where stderr goes, also while `quiet_start` holds it back


def print_at_once(text: str) -> None:
    """Write a line to stderr at once, also while it is held back.

    Not by `sys.stderr`, whose lock another thread may hold.
    """
    _write(_shown, f"{text}\n".encode())


@contextmanager
def quiet_start() -> Iterator[None]:
    """Hold back messages of TensorFlow's libraries on stderr while the body imports them.

    Lines of anybody else are passed on at the end, and all lines where TensorFlow cannot be
    imported.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    global _shown
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        before, shown = os.dup(_STDERR), _shown
        _shown = before if shown == _STDERR else shown
        os.dup2(held.fileno(), _STDERR)
        keep_all = False
        try:
            yield
            if "tensorflow" in sys.modules:  # It looks for devices at its first use.
                sys.modules["tensorflow"].config.list_physical_devices()
        except ImportError:
            keep_all = True
            raise
        finally:
            sys.stderr.flush()
            os.dup2(before, _STDERR)
            _shown = shown
            os.close(before)
            held.seek(0)
            for line in held:
                if keep_all or not _NOISE.match(line):
                    _write(_STDERR, line)


def _write(descriptor: int, line: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody reads any more, or the disk is full
        os.write(descriptor, line)
