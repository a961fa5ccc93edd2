"""SIGINT and SIGTERM as requests to stop, which a run handles between two steps."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Interrupted(Exception):
    """A run was stopped by a signal, after it wrote a checkpoint.

    Args:
        signum: Number of the signal.
    """

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.exit_code = 128 + signum


class InterruptRequest:
    """The signal that was received, if any.

    Args:
        before_exit: Called when a second signal ends the process.
    """

    signum: int | None = None

    def __init__(self, before_exit: Callable[[], None] | None = None):
        self._before_exit = before_exit

    def receive(self, signum: int, frame: object) -> None:
        """Store the first signal; a second one ends the process immediately."""
        del frame
        if self.signum is not None:
            if self._before_exit is not None:
                self._before_exit()
            os._exit(128 + signum)
        self.signum = signum

    def interruption(self) -> Interrupted | None:
        """The exception that ends the run after a signal, or None."""
        signum = self.signum  # read once: another one may come
        return None if signum is None else Interrupted(signum)


@contextmanager
def interrupt_requests(
    before_exit: Callable[[], None] | None = None,
) -> Iterator[InterruptRequest]:
    """Handle SIGINT and SIGTERM while the body runs, then restore the previous handlers.

    Args:
        before_exit: As for `InterruptRequest`.
    """
    request = InterruptRequest(before_exit)
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request.receive) for number in signals}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
