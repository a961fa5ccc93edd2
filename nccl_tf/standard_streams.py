"""Standard streams that are closed, or whose reader leaves: the command goes on without them."""

import io
import os
import sys


def keep_standard_streams() -> None:
    """Open streams that are closed, and let text go nowhere once its reader has left.

    A daemon starts a command with closed streams, and `| head -1` leaves after a line. A closed
    descriptor would be given to the next file that is opened, which takes then what libraries
    print.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    while nowhere <= 2:
        os.set_inheritable(nowhere, True)  # processes of runs have the streams of this one
        nowhere = os.open(os.devnull, os.O_RDWR)
    os.close(nowhere)
    sys.stdout = _lasting(sys.stdout, 1)
    sys.stderr = _lasting(sys.stderr, 2)


class _Lasting(io.FileIO):
    """A descriptor that leads nowhere from the time that its reader has left."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
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
