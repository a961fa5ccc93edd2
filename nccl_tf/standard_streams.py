"""Standard streams that are closed, full, or whose reader leaves: the command goes on without."""

import contextlib
import io
import os
import sys


def keep_standard_streams() -> None:
    """Open streams that are closed, and let text go nowhere once it cannot be written.

    A daemon starts a command with closed streams, `| head -1` leaves after a line, and a file may
    lie on a full disk. A closed descriptor would be given to the next file that is opened, which
    takes then what libraries print.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    while nowhere <= 2:
        os.set_inheritable(nowhere, True)  # processes of runs have the streams of this one
        nowhere = os.open(os.devnull, os.O_RDWR)
    os.close(nowhere)
    sys.stdout = _lasting(sys.stdout, 1)
    sys.stderr = _lasting(sys.stderr, 2)


def lost_output() -> str | None:
    """Why text of standard output is lost; None where it is not, or where its reader has left."""
    with contextlib.suppress(ValueError):  # it is closed
        sys.stdout.flush()
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.lost if isinstance(raw, _Lasting) else None


class _Lasting(io.FileIO):
    """A descriptor that leads nowhere from the time that it could not be written.

    Attributes:
        lost: Why; None where its reader has left, or nothing is lost.
    """

    lost: str | None = None

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.lost = error.strerror
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)  # type: ignore[arg-type]


def _lasting(stream: object, descriptor: int) -> io.TextIOWrapper:
    """A stream of a descriptor with the encoding and the buffers of the one before."""
    file = io.BufferedWriter(_Lasting(descriptor, "w", closefd=False))
    if not isinstance(stream, io.TextIOWrapper):  # it is closed
        return io.TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=True)
    stream.flush()
    return io.TextIOWrapper(
        file, stream.encoding, stream.errors, line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )  # fmt: skip
