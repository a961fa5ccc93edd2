"""The turns of the threads that use one learner, such as one that trains and one that predicts."""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from nccl_tf.errors import UserError

Verb = TypeVar("Verb", bound=Callable[..., Any])


class Turns:
    """Lets threads take turns, so that none sees the half of what another one changes.

    Threads that read may be inside together; one that changes what they read is alone. They enter
    in the order in which they come. A thread that is inside may enter again.
    """

    def __init__(self) -> None:
        self._moved = threading.Condition()
        self._queue: list[int] = []
        self._inside: Counter[int] = Counter()
        self._alone: Counter[int] = Counter()
        self._verb: tuple[int, str] | None = None

    @contextmanager
    def take(self, alone: bool = False) -> Iterator[None]:
        """A context of one turn: together with others that are not alone, or alone."""
        me = threading.get_ident()
        counts = (self._inside, self._alone) if alone else (self._inside,)
        with self._moved:
            # Who is inside goes first: others may wait for the end of its turn.
            self._queue.insert(0 if me in self._inside else len(self._queue), me)
            try:
                self._moved.wait_for(lambda: self._queue[0] == me and self._is_free(alone))
                for count in counts:
                    count[me] += 1
            finally:
                self._queue.remove(me)
                self._moved.notify_all()
        try:
            yield
        finally:
            with self._moved:
                for count in counts:
                    count[me] -= 1
                    if not count[me]:
                        del count[me]
                self._moved.notify_all()

    def _is_free(self, alone: bool) -> bool:
        """Whether the first of the queue may enter. Who waits is at rest, also inside."""
        barred = self._inside if alone else self._alone
        return barred.keys() <= set(self._queue)

    @contextmanager
    def verb(self, name: str) -> Iterator[None]:
        """A context of a verb that no other one of another thread may run beside.

        Raises:
            UserError: One does.
        """
        me = threading.get_ident()
        with self._moved:
            before = self._verb
            if before is not None and before[0] != me:
                raise UserError(
                    f"received {name} while another thread runs {before[1]} of the same learner, "
                    "which changes the same state: wait for its end; predict, accuracy and save "
                    "may run meanwhile"
                )
            self._verb = me, name
        try:
            yield
        finally:
            self._verb = before


def one_at_a_time(verb: Verb) -> Verb:
    """A verb of a learner that says so where another thread is in one that excludes it."""

    @functools.wraps(verb)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.execution.turns.verb(verb.__name__):
            return verb(self, *args, **kwargs)

    return cast(Verb, run)


def alone(verb: Verb) -> Verb:
    """A verb of a learner that waits until no thread takes a step or predicts, and lets none."""

    @functools.wraps(verb)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self.execution.turns.take(alone=True):
            return verb(self, *args, **kwargs)

    return cast(Verb, run)
