"""How a learner runs its steps: by themselves, or many in one program of XLA."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.learner import chunk, fitting
from nccl_tf.learner.data import FitData
from nccl_tf.learner.traced import TracedGraphs
from nccl_tf.networks.inspection import has_convolutions, text_inputs


class Execution:
    """How a learner runs its steps, chosen before the first one that follows a `compile`.

    Args:
        learner: The learner.

    Attributes:
        under_xla: Whether steps run under XLA; None where they do as long as XLA does not refuse
            them.
        traces: How often a step was traced.
        test_functions: Keras's compiled functions of evaluation, by the steps of a call.
    """

    def __init__(self, learner: keras.Model) -> None:
        self._learner = learner
        self._graphs = TracedGraphs(learner)
        self.traces = 0
        self.under_xla: bool | None = False
        self._asked: int | None = 1
        self._per_program = 0
        self._is_chosen = False
        self.test_functions: dict[int, Any] = {}

    @property
    def per_program(self) -> int:
        """Steps of a whole program of XLA, as chosen; 0 where steps run without.

        It stays until the next `compile`, also where XLA refuses the steps.
        """
        return self._per_program

    @property
    def made(self) -> int:
        """Traces and programs of XLA so far: a call that makes one is slow."""
        compiled: int = self._learner.train_function.compiled
        return self.traces + compiled

    @property
    def most_per_call(self) -> int:
        """The most steps that one call of the train function takes; 1 before `compile`."""
        if not self._learner.compiled or self._learner.run_eagerly:
            return 1
        return self._per_program if self._in_programs else self._most

    @property
    def _in_programs(self) -> bool:
        return bool(self._per_program) and self.under_xla is not False

    @property
    def _most(self) -> int:
        fast = fitting.most_steps(self._learner.network)
        return self._learner.devices.most_steps(self._asked, fast)

    def note_trace(self) -> None:
        """Note that a training step is traced, or run eagerly."""
        self.traces += 1
        self.note_graph()

    def note_graph(self) -> None:
        """Note a graph that is being traced, to take it apart when the learner is deleted."""
        self._graphs.note()

    def begin(self, asked: int | None) -> None:
        """Begin anew, at `compile`.

        Args:
            asked: `steps_per_execution` as `compile` received it.
        """
        self._asked = asked
        self.under_xla, self._per_program, self._is_chosen = False, 0, False

    def choose(
        self,
        batches: int | None,
        steps: int | None,
        callbacks: Sequence[keras.callbacks.Callback] = (),
        resumed: int | None = None,
    ) -> None:
        """Choose how steps run, by themselves or under XLA, until the next `compile`.

        `fit` calls it, and so does what trains in several fits, before the first of them. The
        second call changes nothing.

        Args:
            batches: Of the first epoch; None where it is not known.
            steps: Of all that will be trained; None where it is not known.
            callbacks: Those of all fits.
            resumed: `per_program` of the training that is resumed, which holds where `compile` has
                not asked for something else; None of one that begins.
        """
        learner = self._learner
        if self._is_chosen or not learner.compiled:
            return
        self._is_chosen = True
        able = learner.devices.count == 1 and not learner.run_eagerly
        self.under_xla = self._resolved(steps, resumed) if able else False
        if self.under_xla is not False:
            self._per_program = fitting.steps_per_execution(
                self._asked or resumed or fitting.most_steps(learner.network), 1, batches, None,
                callbacks, self._asked is not None, bool(resumed),
            )  # fmt: skip

    def _resolved(self, steps: int | None, resumed: int | None) -> bool | None:
        """Whether steps run under XLA on this machine, as `under_xla` has it.

        A fixed rule, no measurement, so that the same program computes the same bits again.

        Args:
            steps: How many there will be; None where it is not known.
            resumed: As for `choose`, 0 without XLA.
        """
        learner = self._learner
        asked = (learner.get_compile_config() or {})["jit_compile"]
        if asked is not None:
            return bool(asked)
        if resumed is not None:
            return None if resumed else False
        if learner.why_not("jit_compile") or text_inputs(learner.network):
            return False
        if tf.config.get_visible_devices("GPU"):
            return None
        # Convolutions are slower under XLA on a processor.
        pays = steps is not None and steps >= chunk.STEPS_THAT_PAY
        return None if pays and not has_convolutions(learner.network) else False

    def set_per_call(
        self, batches: int | None, steps_per_epoch: int | None, callbacks: Any
    ) -> None:
        """Set the learner's `steps_per_execution` for a fit.

        Args:
            batches: Of an epoch; None where it is not known.
            steps_per_epoch: As `fit` received it.
            callbacks: Of the fit.
        """
        learner = self._learner
        # A program of XLA is compiled for its number of steps, which tasks of all lengths share.
        is_fixed = self._in_programs
        most = self._per_program if is_fixed else self._most
        steps = fitting.steps_per_execution(
            1 if learner.run_eagerly else most, learner.steps_per_execution, batches,
            steps_per_epoch, callbacks, self._asked is not None, is_fixed,
        )  # fmt: skip
        if steps != learner.steps_per_execution:
            learner.steps_per_execution = steps
            self.forget()

    def take(self, data: FitData) -> Any:
        """What Keras iterates over: under XLA the indices of a task's batches, gathered there.

        Args:
            data: Of a fit.
        """
        by_index = None if self.under_xla is False else data.by_index
        self._learner.make_train_function()
        columns = None if by_index is None else by_index.columns
        self._learner.train_function.columns = chunk.on_device(columns)
        return data.x if by_index is None else by_index.rows

    def forget(self) -> None:
        """Forget every compiled function, because a step or the variables have changed."""
        learner = self._learner
        before = learner.train_function
        learner.train_function = learner.test_function = learner.predict_function = None
        self.test_functions.clear()
        if before is not None:  # A callback may ask for it when Keras has made that of this fit.
            learner.make_train_function()
            learner.train_function.columns = before.columns
