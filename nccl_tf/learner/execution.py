"""How a learner runs its steps: one after another, or K of them as one XLA program.

A step of a small network is some two hundred operations, each of which TensorFlow starts by itself.
XLA compiles K whole steps, memory and logs included, into one program, which starts none. K batches
are taken from the iterator and stacked before it, so the program knows every shape, and one trace
serves every K and size of a batch.
"""

import contextlib
import logging
import math
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf import keras_private, xla
from nccl_tf.errors import UserError
from nccl_tf.keras_private import graph
from nccl_tf.learner.data import HostFacts
from nccl_tf.learner.turns import Turns
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.streams.batches import IndexedBatches, Reading, gather

LOGGER = logging.getLogger("nccl_tf")

DENSE_STEPS, CONVOLUTION_STEPS = 200, 50
"""The most steps in one call, where the user names no number.

A call costs as much as some six steps of a small dense network, and a signal or a checkpoint, which
waits for its end, should not wait long.
"""
STEPS_THAT_PAY = 3_000
"""Steps of a dense network on a processor that chunks are compiled for.

By `python -m benchmarks.chunks_pay` they win back what compiling takes in 0 to 1,300 steps where
the programs are kept from a run before, and in 4,200 to 9,700 where they are not. The rule must
not ask which, because chunks and plain steps part in the last bits: in between, the first run of a
program takes up to 3 s more, and each later one takes less.
"""
DEVICE_SHARE = 2 * 2**30
"""The most bytes of a task's examples that a GPU gets a copy of."""
REFUSALS = (
    tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.NotFoundError,
    tf.errors.InternalError,
)  # fmt: skip
"""Errors of TensorFlow where XLA cannot compile a program, before anything of it runs."""
_FREQUENCIES = ("update_freq", "log_freq", "save_freq")
"""Attributes of callbacks, Keras's and those of W&B, that name a number of batches."""


class StepFunctions(NamedTuple):
    """The functions that a call of a train function runs.

    Attributes:
        step: From the data of a batch to logs.
        results: Returns the results of the metrics.
        loop: From a step to the function that Keras calls with an iterator, without XLA.
        adds_logs: Whether a step may add logs to the results of the metrics.
        eagerly: Whether steps run eagerly, which `loop` does alone.
    """

    step: Callable[[Any], dict[str, Any]]
    results: Callable[[], dict[str, Any]]
    loop: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]
    adds_logs: bool
    eagerly: bool = False


class Execution:
    """How steps run, chosen before the first one that follows a `compile`, and their graphs.

    Attributes:
        under_xla: Whether steps run under XLA; None where they do as long as XLA does not refuse
            them.
        traces: How often a step was traced.
        known: What the host knows of all that an iterator delivers; steps that need not compute it
            have graphs of their own.
        turns: Of the threads that use the learner.
    """

    def __init__(self) -> None:
        self.turns = Turns()
        self.traces = 0
        self.known = HostFacts()
        self._steps, self._thread = 1, threading.local()
        self._noted: list[Any] = []
        weakref.finalize(self, keras_private.dismantle, self._noted).atexit = False
        self.begin(1, 1)
        self._is_chosen = True  # there is nothing to choose before `compile`
        self.discard_graphs()

    # ---- what is chosen --------------------------------------------------------------------------

    def begin(
        self,
        steps: int | None,
        most: int,
        jit_compile: bool | None = False,
        may_compile: bool = False,
        convolves: bool = False,
    ) -> None:
        """Begin anew, at `compile`.

        Args:
            steps: In one call, as the user asks for them; None to choose.
            most: Steps in one call, where the user names no number.
            jit_compile: Whether steps run under XLA; None to choose.
            may_compile: Whether XLA is known to compile them, as far as can be told.
            convolves: Whether convolutions are trained, which XLA slows down on a processor.
        """
        self._asked, self._most = steps, most
        self._jit_compile, self._may_compile, self._convolves = jit_compile, may_compile, convolves
        self.under_xla: bool | None = False
        self._per_program, self._is_chosen = 0, False

    @property
    def per_program(self) -> int:
        """Steps of a whole program of XLA, as chosen; 0 where steps run without.

        It stays until the next `compile`, also where XLA refuses the steps.
        """
        return self._per_program

    @property
    def most_per_call(self) -> int:
        """The most steps that one call of the train function takes; 1 before `compile`."""
        return self._per_program if self._in_programs else self._asked or self._most

    @property
    def _in_programs(self) -> bool:
        return bool(self._per_program) and self.under_xla is not False

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
        if self._is_chosen:
            return
        self._is_chosen = True
        self.under_xla = self._resolved(steps, resumed)
        if self.under_xla is not False:
            self._per_program = steps_in_a_call(
                self._asked or resumed or self._most, 1, batches, None, callbacks,
                self._asked is not None, bool(resumed),
            )  # fmt: skip

    def _resolved(self, steps: int | None, resumed: int | None) -> bool | None:
        """Whether steps run under XLA on this machine, as `under_xla` has it.

        A fixed rule, no measurement, so that the same program computes the same bits again.

        Args:
            steps: How many there will be; None where it is not known.
            resumed: As for `choose`, 0 without XLA.
        """
        if self._jit_compile is not None:
            return self._jit_compile
        if resumed is not None:
            return None if resumed else False
        if not self._may_compile:
            return False
        if tf.config.get_visible_devices("GPU"):
            return None
        pays = steps is not None and steps >= STEPS_THAT_PAY
        return None if pays and not self._convolves else False

    def set_per_call(
        self, batches: int | None, steps_per_epoch: int | None, callbacks: Iterable[Any]
    ) -> None:
        """Set the steps of a call for a fit.

        Args:
            batches: Of an epoch; None where it is not known.
            steps_per_epoch: As `fit` received it.
            callbacks: Of the fit.
        """
        # A program of XLA is compiled for its number of steps, which tasks of all lengths share.
        self.steps = steps_in_a_call(
            self.most_per_call, self.steps, batches, steps_per_epoch, callbacks,
            self._asked is not None, self._in_programs,
        )  # fmt: skip

    # ---- steps of a call -------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Steps in one call of a graph: those of `calls_of` in this thread, or those of `fit`."""
        steps: int = getattr(self._thread, "steps", self._steps)
        return steps

    @steps.setter
    def steps(self, steps: int) -> None:
        self._steps = steps

    @contextlib.contextmanager
    def calls_of(self, steps: int) -> Iterator[None]:
        """A context in which calls of this thread take so many steps, and those of others do not.

        One that predicts while another trains has steps of its own.
        """
        before = getattr(self._thread, "steps", None)
        self._thread.steps = steps
        try:
            yield
        finally:
            if before is None:
                del self._thread.steps
            else:
                self._thread.steps = before

    # ---- traces ----------------------------------------------------------------------------------

    @property
    def made(self) -> int:
        """Traces and programs of XLA so far: a call that makes one is slow."""
        # A program is compiled for each number of steps and batch size.
        return self.traces + len(self._compiled)

    def note_trace(self) -> None:
        """Note that a training step is traced, or run eagerly."""
        self.traces += 1
        self.note_graph()

    def note_graph(self) -> None:
        """Note a graph that is being traced, to take it apart when the learner is deleted.

        Keras calls a step as a compiled function within another one. TensorFlow keeps the graph of
        such a function for ever: its operations refer to it where Python's garbage collector does
        not look.
        """
        if not tf.executing_eagerly():
            self._noted.append(tf.compat.v1.get_default_graph())

    def discard_graphs(self) -> None:
        """Discard every graph of steps, because a step or the variables have changed."""
        self._plain: dict[tuple[HostFacts, int], Callable[[Any], Any]] = {}
        self._results: Any = None
        self._take = graph(_stacked, reduce_retracing=True)
        self._by_index: dict[HostFacts, StepsByIndex] = {}
        self._programs: dict[tuple[str, HostFacts], _Program] = {}
        self._placed_examples: tuple[IndexedBatches, Any] | None = None
        self._compiled: set[tuple[_Program, int, int]] = set()

    # ---- the train function ----------------------------------------------------------------------

    def run(self, functions: StepFunctions, iterator: Any) -> Any:
        """Take the steps of one call, and return their logs: Keras's train function.

        Raises:
            StopIteration: There is no batch.
            UserError: XLA cannot compile the steps, and `compile` asked for it.
        """
        if isinstance(iterator, Reading) and not functions.eagerly:
            return self._run_by_index(functions, iterator)
        if self.under_xla is False or not _is_static(iterator):
            return self._run_plainly(functions, iterator)
        return self._run_chunks(functions, iterator)

    def _run_by_index(self, functions: StepFunctions, reading: Reading) -> Any:
        """Take the steps of a call from examples in memory."""

        def steps(rows: tuple[np.ndarray, ...], left: int) -> Any:
            if self.under_xla is not False:  # one gather, outside of the program of XLA
                batches = gather(self._place(reading.batches), *rows)
                return self._learn(functions, batches, len(rows[0]), left)
            if self.known not in self._by_index:
                self._by_index[self.known] = StepsByIndex(functions, self.note_graph)
            return self._by_index[self.known].take(reading.batches, rows)

        return reading.run(self.steps, steps)

    def _place(self, batches: IndexedBatches) -> Any:
        """The examples where steps under XLA take them from."""
        if self._placed_examples is None or self._placed_examples[0] is not batches:
            self._placed_examples = batches, _on_device(batches.tensors)
        return self._placed_examples[1]

    def _run_chunks(self, functions: StepFunctions, iterator: Any) -> Any:
        left, logs = self.steps, None
        while left:
            count, batches, following = self._take(iterator, tf.constant(left))
            if not int(count):
                break
            logs = self._learn(functions, batches, int(count), left)
            left -= int(count)
            if left and bool(following.has_value()):
                one = tf.nest.map_structure(lambda part: part[None], following.get_value())
                logs = self._learn(functions, one, 1, left)
                left -= 1
        if logs is None:
            raise StopIteration
        return logs

    def _run_plainly(self, functions: StepFunctions, iterator: Any) -> Any:
        key = self.known, self.steps
        if key not in self._plain:
            self._plain[key] = functions.loop(_after_data(functions))
        logs = self._plain[key](iterator)
        if functions.adds_logs:
            return logs
        self._results = self._results or graph(functions.results)
        return self._results()

    def _learn(self, functions: StepFunctions, batches: Any, count: int, asked: int) -> Any:
        """Learn stacked batches: K of them at once, fewer of them one by one."""
        program = self._program(functions, batches)
        if count == self.steps == asked:
            return self._run(program, batches)
        logs = None
        for number in range(count):
            one = tf.nest.map_structure(lambda part, n=number: part[n : n + 1], batches)
            logs = self._run(program, one)
        return logs

    def _program(self, functions: StepFunctions, batches: Any) -> "_Program":
        spec = tf.nest.map_structure(
            lambda part: tf.TensorSpec([None, *part.shape[2:]], part.dtype), batches
        )
        key = str(spec), self.known
        if key not in self._programs:
            self._programs[key] = _program(functions, spec)
        return self._programs[key]

    def _run(self, program: "_Program", batches: Any) -> Any:
        if self.under_xla is False:
            return program.plain(batches)
        self._compiled.add((program, *tf.nest.flatten(batches)[0].shape[:2]))
        try:
            return program.compiled(batches)
        except tf.errors.OutOfRangeError as error:
            # Such as of a cut file in TensorFlow's cache. Keras takes it for the end of the data,
            # which a program of XLA does not read.
            raise RuntimeError(f"XLA's program of the steps failed: {error.message}") from error
        except REFUSALS as error:
            # Nothing of the program has run: it moves its variables when it ends.
            reason = _reason_of(error)
            if self.under_xla:
                raise UserError(
                    f"received jit_compile=True, but XLA cannot compile the step: {reason}; leave "
                    "jit_compile out, or change what it names"
                ) from error
            LOGGER.info("steps run without XLA, which cannot compile them: %s", reason)
            self.under_xla = False
            return program.plain(batches)


# ---- how many steps a call has -------------------------------------------------------------------


def most_steps(network: keras.Model) -> int:
    """The most steps in one call of the graph that is fast and not long."""
    return CONVOLUTION_STEPS if has_convolutions(network, frozen=True) else DENSE_STEPS


def steps_in_a_call(
    most: int,
    current: int,
    batches: int | None,
    steps_per_epoch: int | None,
    callbacks: Iterable[Any],
    asked: bool,
    is_fixed: bool = False,
) -> int:
    """Steps in one call of the graph.

    Keras runs past a `steps_per_epoch` that the number does not divide, and tells callbacks the
    number of a call's last batch alone. A change of the number compiles the step again, so the
    current number stays where it serves.

    Args:
        most: No more than this.
        current: The current number.
        batches: Of an epoch; None where it is not known.
        steps_per_epoch: As `fit` received it.
        callbacks: Those of `fit`.
        asked: Whether the user has named `most` in `compile`.
        is_fixed: Whether another number than `most` costs a program of its own, however long the
            epoch is.

    Returns:
        The largest number that divides `steps_per_epoch`, the frequencies of callbacks and, where
        one has a frequency, the epoch; where it can be 10 or more, or the whole, a divisor of the
        epoch.
    """
    if not asked and ((batches is None and not is_fixed) or any(map(_sees_batches, callbacks))):
        return 1
    periods = [getattr(callback, name, None) for callback in callbacks for name in _FREQUENCIES]
    counted = [period for period in periods if isinstance(period, int) and period > 0]
    whole = [batches if counted else None, steps_per_epoch]
    counted += [period for period in whole if period]

    if (asked or is_fixed) and not counted:
        return most
    common = math.gcd(*counted)
    numbers = [n for n in (_divisors(common) if counted else range(1, most + 1)) if n <= most]
    if asked or is_fixed or batches is None:
        return numbers[-1]
    if current in numbers and 2 * current >= min(numbers[-1], batches):
        return current
    divisors = [n for n in numbers if batches % n == 0 and (n >= 10 or n == batches)]
    return divisors[-1] if divisors else numbers[-1]


def _divisors(number: int) -> list[int]:
    """All divisors in order, found in time proportional to the root of a number of any size."""
    low = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def _sees_batches(callback: Any) -> bool:
    """Whether a callback of the user's own acts on batches, and so wants to see each of them."""
    verbs = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
    if any(verb in vars(callback) for verb in verbs):  # a LambdaCallback
        return True
    if isinstance(callback, keras.callbacks.TensorBoard):  # counts calls as batches
        return isinstance(callback.update_freq, int)
    if type(callback).__module__.partition(".")[0] in ("keras", "nccl_tf"):
        return False
    base = keras.callbacks.Callback
    return any(getattr(type(callback), verb, None) is not getattr(base, verb) for verb in verbs)


# ---- graphs --------------------------------------------------------------------------------------


def _after_data(functions: StepFunctions) -> Callable[[Any], Any]:
    """A step that begins when its batch has come, without the results of metrics.

    Where data of unknown length end, TensorFlow asks for one batch more, and would draw from the
    memory for it meanwhile. Results are taken once, after all steps of a call, unless a step adds
    logs to them.
    """

    def begin(data: Any) -> Any:
        parts = tf.nest.flatten(data, expand_composites=True)
        with tf.control_dependencies([part for part in parts if part is not None]):
            logs = functions.step(data)
            return logs if functions.adds_logs else tf.zeros(())

    return begin


class StepsByIndex:
    """Steps without XLA over examples in memory: a graph for each form of these.

    Args:
        functions: What the graphs run.
        note_graph: Notes a graph that is being traced, as `Execution.note_graph`.
    """

    def __init__(self, functions: StepFunctions, note_graph: Callable[[], None]) -> None:
        self._functions, self._note_graph = functions, note_graph
        self._graphs: dict[tuple[str, int | None], Any] = {}

    def take(self, batches: IndexedBatches, rows: tuple[np.ndarray, ...]) -> Any:
        """Take a step for each of some batches, and return their logs.

        Args:
            batches: All of them.
            rows: Those of the steps, as `Reading.take` returns them.
        """

        def run(columns: Any, rows: tuple[tf.Tensor, ...]) -> Any:
            self._note_graph()

            def batch(number: tf.Tensor) -> Any:
                with tf.device("CPU:0"):  # where the columns are
                    return gather(columns, *(part[number] for part in rows))

            return _steps(self._functions, tf.shape(rows[0])[0], batch)

        form = tf.nest.map_structure(
            lambda column: tf.TensorSpec([None, *column.shape[1:]], column.dtype), batches.tensors
        )
        # A graph that takes batches of any size, as a rest needs it, takes those of one size too.
        name = f"{form}, {len(rows)}"
        size = None if (name, None) in self._graphs else batches.fixed_size
        if (name, size) not in self._graphs:
            of_rows = tuple(tf.TensorSpec([None, size], part.dtype) for part in rows)
            self._graphs[name, size] = graph(run, input_signature=(form, of_rows))
        return self._graphs[name, size](batches.tensors, rows)


def _steps(
    functions: StepFunctions, count: tf.Tensor, batch: Callable[[tf.Tensor], Any]
) -> dict[str, Any]:
    """Take some steps, one after another, and return their logs. Graph code.

    Args:
        functions: The step, and the results of metrics after the last one.
        count: How many steps.
        batch: From the number of a step to its batch.
    """
    own = _own_logs(functions, batch(tf.constant(0))) if functions.adds_logs else {}

    def step(number: tf.Tensor, logs: Any) -> Any:
        del logs
        found = functions.step(batch(number))
        return number + 1, {name: found[name] for name in own}

    start = {name: tf.zeros(s.shape, s.dtype) for name, s in own.items()}
    _, logs = tf.while_loop(
        lambda number, _: number < count, step, (0, start), parallel_iterations=1
    )
    return {**logs, **functions.results()}


class _Program(NamedTuple):
    """The steps of stacked batches of one form, without XLA and under it."""

    plain: Any
    compiled: Any


def _program(functions: StepFunctions, spec: Any) -> _Program:
    """The program of all steps of a call.

    Args:
        functions: The step, and the results of metrics after the last one.
        spec: Of a batch.
    """

    def run(batches: Any) -> Any:
        def batch(number: tf.Tensor) -> Any:
            return tf.nest.map_structure(lambda part: part[number], batches)

        return _steps(functions, tf.shape(tf.nest.flatten(batches)[0])[0], batch)

    def run_under_xla(batches: Any) -> Any:
        with xla.program():
            return run(batches)

    stacked = [tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype), spec)]
    return _Program(
        graph(run, input_signature=stacked),
        graph(run_under_xla, input_signature=stacked, jit_compile=True),
    )


def _own_logs(functions: StepFunctions, batch: Any) -> dict[str, Any]:
    """The logs that a step of a user's class adds to those of the metrics, of a batch as this."""
    spec = tf.nest.map_structure(lambda part: tf.TensorSpec(part.shape, part.dtype), batch)
    step = tf.function(functions.step, [spec], autograph=False)
    found = step.get_concrete_function().structured_outputs
    known = functions.results()
    return {name: value for name, value in found.items() if name not in known}


def _stacked(iterator: Any, most: tf.Tensor) -> tuple[tf.Tensor, Any, Any]:
    """Batches of one size, stacked, and the one of another size that came after them.

    Args:
        iterator: Of tf.data.
        most: int32 scalar, at most so many.

    Returns:
        How many there are, int32; the batches [count, size, ...]; and an optional.
    """
    spec = iterator.element_spec
    parts = tf.nest.flatten(spec)

    def size_of(batch: tf.experimental.Optional) -> tf.Tensor:
        return tf.cond(
            batch.has_value(),
            lambda: tf.shape(tf.nest.flatten(batch.get_value())[0])[0],
            lambda: -1,
        )

    def take(count: tf.Tensor, arrays: Any, batch: Any, size: tf.Tensor) -> Any:
        values = tf.nest.flatten(batch.get_value())
        arrays = [a.write(count, v) for a, v in zip(arrays, values, strict=True)]
        following = tf.cond(
            count + 1 < most,
            iterator.get_next_as_optional,
            lambda: tf.experimental.Optional.empty(spec),
        )
        return count + 1, arrays, following, size_of(following)

    # The data come from the host, and go to the device once, stacked.
    with tf.device("CPU:0"):
        first = iterator.get_next_as_optional()
        size = size_of(first)
        arrays = [tf.TensorArray(s.dtype, 0, True, infer_shape=False, element_shape=s.shape)
                  for s in parts]  # fmt: skip
        count, arrays, following, _ = tf.while_loop(
            lambda count, _, batch, own: (own == size) & (own >= 0), take,
            (0, arrays, first, size), parallel_iterations=1,
        )  # fmt: skip
        stacked = tf.cond(
            count > 0,
            lambda: [a.gather(tf.range(count)) for a in arrays],
            lambda: [tf.zeros([0, *(side or 0 for side in s.shape)], s.dtype) for s in parts],
        )
        stacked = [
            tf.ensure_shape(part, [None, *s.shape]) for part, s in zip(stacked, parts, strict=True)
        ]
        return count, tf.nest.pack_sequence_as(spec, stacked), following


def _is_static(iterator: Any) -> bool:
    """Whether an iterator delivers what can be stacked for XLA: dense tensors that are no text."""
    if not isinstance(iterator, tf.data.Iterator):
        return False
    parts = tf.nest.flatten(iterator.element_spec)
    return all(
        isinstance(part, tf.TensorSpec) and part.shape.rank and part.dtype != tf.string
        for part in parts
    )


def _reason_of(error: Exception) -> str:
    """The operation that XLA cannot compile, as it names it, in a line."""
    text = str(getattr(error, "message", error))
    found = re.search(r"(?:unsupported operations|Detected unsupported)[^\n]*?: ([^\n]+)", text)
    return " ".join((found.group(1) if found else text.strip().split("\n")[0]).split())[:300]


def _on_device(columns: Any) -> Any:
    """The examples of a task on the device, where there is a GPU and they are not too large."""
    if not tf.config.get_visible_devices("GPU"):
        return columns
    parts = tf.nest.flatten(columns)
    is_text = any(part.dtype == tf.string for part in parts)
    if is_text or sum(part.dtype.size * int(tf.size(part)) for part in parts) > DEVICE_SHARE:
        return columns
    with tf.device("GPU:0"):
        return tf.nest.map_structure(tf.identity, columns)
