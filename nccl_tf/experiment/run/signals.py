"""SIGINT and SIGTERM as requests to stop, which a run handles between two steps."""

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nccl_tf.quiet_start import print_at_once

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
        before_exit: Called when a signal ends the process.
        resume_hint: How to go on after a signal that comes before `interruption` was first called:
            nothing is lost yet, so that one ends the process. None where every first signal is
            stored.
    """

    signum: int | None = None
    _trains = False

    def __init__(
        self, before_exit: Callable[[], None] | None = None, resume_hint: str | None = None
    ):
        self._before_exit, self._resume_hint = before_exit, resume_hint

    def receive(self, signum: int) -> None:
        """Store the first signal and say so; a second one ends the process immediately."""
        if self.signum is None and (self._trains or self._resume_hint is None):
            self.signum = signum
            name = signal.Signals(signum).name
            print_at_once(
                f"{name}: stops after the steps under way; a second signal ends it at once"
            )
            return
        if self.signum is None:
            print_at_once(f"{Interrupted(signum)}; {self._resume_hint}")
        if self._before_exit is not None:
            self._before_exit()
        os._exit(128 + signum)

    def interruption(self) -> Interrupted | None:
        """The exception that ends the run after a signal, or None; called between two steps."""
        self._trains = True
        signum = self.signum  # read once: another one may come
        return None if signum is None else Interrupted(signum)


@contextmanager
def interrupt_requests(
    before_exit: Callable[[], None] | None = None, resume_hint: str | None = None
) -> Iterator[InterruptRequest]:
    """Handle SIGINT and SIGTERM while the body runs, then restore the previous handlers.

    A thread of its own receives them. Python calls a handler between two of its instructions alone,
    so never while TensorFlow compiles or runs steps.

    Args:
        before_exit: As for `InterruptRequest`.
        resume_hint: As for `InterruptRequest`.
    """
    request = InterruptRequest(before_exit, resume_hint)
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    thread = threading.Thread(target=_receive_all, args=(receiver, request), daemon=True)
    thread.start()
    before_descriptor = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    before = {number: signal.signal(number, _leave_to_thread) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_descriptor)
        sender.close()
        thread.join()
        receiver.close()


def _receive_all(receiver: socket.socket, request: InterruptRequest) -> None:
    """Pass on the numbers of signals, a byte each, until the other end is closed."""
    while numbers := receiver.recv(64):
        for number in numbers:
            if number in _SIGNALS:
                request.receive(number)


def _leave_to_thread(signum: int, frame: object) -> None:
    """Do nothing: only a signal that has a handler is written to the wake-up descriptor."""
