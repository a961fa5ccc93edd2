"""SIGINT and SIGTERM as requests that a run answers between two steps."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """A run stopped because a signal asked it to, after its checkpoint was written.

    Args:
        signum: Number of the signal.
    """

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


class InterruptRequest:
    """The signal that came, if one did."""

    signum: int | None = None

    def receive(self, signum: int, frame: object) -> None:
        """Note the first signal; a second one ends the process at once."""
        del frame
        if self.signum is not None:
            os._exit(128 + signum)
        self.signum = signum


@contextmanager
def interrupt_requests() -> Iterator[InterruptRequest]:
    """Collect SIGINT and SIGTERM while the body runs; the handlers before are put back."""
    request = InterruptRequest()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request.receive) for number in signals}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
