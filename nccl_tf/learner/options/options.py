"""The options of a learner."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import keras

from nccl_tf.errors import UserError
from nccl_tf.learner.columns import Column
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.options.step_log import StepLog

AnOption = TypeVar("AnOption", bound=Option)


class Options:
    """The options beside a learner, the one that was added last first.

    Args:
        learner: The learner.
    """

    def __init__(self, learner: keras.Model) -> None:
        self._learner = learner
        self._options: list[Option] = []

    def __iter__(self) -> Iterator[Option]:
        return iter(self._options)

    def of(self, kind: type[AnOption]) -> AnOption | None:
        """The option of a class; None where there is none."""
        return next((option for option in self if isinstance(option, kind)), None)

    def add(self, option: Option) -> None:
        """Let an option take part in every step from the next one on.

        It takes the place of one of the same class.

        Raises:
            UserError: It is no option, the method refuses it, the memory has no place for its
                columns, or it runs on one device only.
        """
        if not isinstance(option, Option):
            raise UserError(
                f"received {option!r} as an option, expected an object of a subclass of "
                "nccl_tf.Option: make one, such as add(MyOption(learner))"
            )
        learner = self._learner
        given = {name: value for name, value in option.get_config().items() if value is not None}
        for reason in filter(None, map(learner.why_not, given)):
            raise UserError(
                f"received {' and '.join(f'{name}={value!r}' for name, value in given.items())}, "
                f"but {type(learner).__name__} {reason}: leave {' and '.join(given)} out"
            )
        learner.devices.check_option(option)
        if option.columns:
            learner.storage.check(option.columns)
        self._options = [option, *(each for each in self if type(each) is not type(option))]
        learner.execution.forget()

    def record_steps(self, every: int) -> StepLog:
        """Keep rows of every log over windows of `every` steps; returns the log."""
        learner, before = self._learner, self.of(StepLog)
        rows = 64 + learner.execution.most_per_call // max(every, 1)
        if before is not None and before.every == every and before.rows >= rows:
            return before
        with learner.distribute_strategy.scope():
            names, ended = (learner.log_names, learner.cumulative), learner.progress.tasks_ended
            log = StepLog(*names, every, rows, ended)
        if before is not None and before.every == every:
            log.restore(before.state())
        self.add(log)
        return log

    def config(self) -> dict[str, Any]:
        """The arguments of the learner's constructor that have made options, by name."""
        return {name: value for option in self for name, value in option.get_config().items()}

    @property
    def columns(self) -> Mapping[str, Column]:
        """What they keep of an example in the memory, as `Learner.columns`."""
        return {name: column for option in self for name, column in option.columns.items()}

    def check(self, done: str) -> None:
        """Check that the learner may be "trained", "saved" or "grown" now.

        Raises:
            UserError: An option forbids it.
        """
        for option in self:
            option.check(done)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """A context in which the learner is as they want it to be evaluated."""
        with ExitStack() as stack:
            for option in self:
                stack.enter_context(option.evaluating())
            yield
