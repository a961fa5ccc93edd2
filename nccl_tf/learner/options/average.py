"""A second set of weights, the moving average of those that are trained."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import AVERAGE_WEIGHTS
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.copies import WeightCopy
from nccl_tf.learner.options.option import Option
from nccl_tf.learner.step import Step
from nccl_tf.learner.turns import Turns
from nccl_tf.variables import assign_all


class AverageWeights(Option):
    """Moves a <- d a + (1 - d) x after every applied step, and evaluates a.

    The average holds the network's float variables, moving averages of batch normalisation too.

    Args:
        average_weights: d.
        network: The network.
        state: Makes variables that are saved with the learner, `Learner.state`.
        turns: Of the threads that use the network.

    Attributes:
        copy: The averages.
        steps: int64, their number of steps.

    Raises:
        UserError: d is out of range.
    """

    def __init__(
        self, average_weights: float, network: keras.Model, state: Callable[..., Any], turns: Turns
    ):
        self.average_weights = AVERAGE_WEIGHTS.taken(average_weights)
        floats = [v for v in network.variables if keras.backend.is_float_dtype(v.dtype)]
        self.copy = WeightCopy(network, state, "average", floats, at_least="float32")
        self.steps: keras.Variable = state("averaged_steps", (), "int64")
        self._turns = turns
        self._evaluated = "averaged"
        self._plain: list[tf.Tensor] | None = None

    @classmethod
    def of(cls, average_weights: float | None, *args: Any) -> "AverageWeights | None":
        """As the constructor; None without an average."""
        return None if average_weights is None else cls(average_weights, *args)

    def after_step(self, batch: Batch, step: Step, note: Any) -> None:
        self.copy.follow(self.average_weights, step.is_learned)
        self.steps.assign_add(tf.cast(step.is_learned, tf.int64))

    def on_task_begin(self, task_id: int) -> None:
        # Weights may have been loaded since the learner was built.
        self.copy.take(tf.equal(self.steps.value, 0))

    def evaluating(self) -> AbstractContextManager[None]:
        return self.use(self._evaluated)

    @contextmanager
    def use(self, which: str) -> Iterator[None]:
        """Let the network hold "averaged" or "plain" weights, and evaluation take them."""
        with self._turns.take(alone=True):
            before, self._evaluated = self._evaluated, which
            holds = "plain" if self._plain is None else "averaged"
            # Before the first step the average is the weights.
            exchanges = which != holds and bool(int(self.steps.numpy()))
            try:
                if exchanges:
                    self._exchange()
                yield
            finally:
                if exchanges:
                    self._exchange()
                self._evaluated = before

    def _exchange(self) -> None:
        """Put the average into the network, or the plain weights back."""
        if self._plain is None:
            self._plain = [tf.identity(v.value) for v in self.copy.originals]
            self.copy.put()
        else:
            assign_all(self.copy.originals, self._plain)
            self._plain = None

    def check(self, done: str) -> None:
        """Raise UserError where the network holds the average, which is not to be trained on.

        Where it does in another thread alone, wait until that thread has left it.
        """
        with self._turns.take():
            holds_average = self._plain is not None
        if holds_average:
            raise UserError(
                f'received a learner to be {done} within use_weights("averaged"), where its '
                "network holds the averaged weights: leave the with block first"
            )

    def get_config(self) -> dict[str, Any]:
        return {"average_weights": self.average_weights}
