"""How Keras runs the steps of a learner: one after another, or K of them as one XLA program.

A step of a small network is some two hundred operations, each of which TensorFlow starts by itself.
XLA compiles K whole steps, memory and logs included, into one program, which starts none. K batches
are taken from the iterator and stacked before it, so the program knows every shape, and one trace
serves every K and size of a batch.
"""

import logging
import re
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from nccl_tf import xla
from nccl_tf.errors import UserError
from nccl_tf.learner.data import Known
from nccl_tf.streams.batches import Columns

LOGGER = logging.getLogger("nccl_tf")

REFUSALS = (
    tf.errors.InvalidArgumentError, tf.errors.UnimplementedError, tf.errors.NotFoundError,
    tf.errors.InternalError,
)  # fmt: skip
"""What TensorFlow raises where XLA cannot compile a program, before anything of it runs."""


STEPS_THAT_PAY = 10_000
"""Steps of a dense network on a processor that save more time than compiling them takes.

`python -m benchmarks.chunks_pay` measures it for every method: 1,300 to 7,800 of those tried.
"""


DEVICE_SHARE = 2 * 2**30
"""The most bytes of a task's examples that a GPU gets a copy of."""


def on_device(columns: Columns | None) -> Columns | None:
    """The examples of a task on the device, where there is a GPU and they are not too large."""
    if columns is None or not tf.config.get_visible_devices("GPU"):
        return columns
    parts = tf.nest.flatten(columns)
    is_text = any(part.dtype == tf.string for part in parts)
    if is_text or sum(part.dtype.size * int(tf.size(part)) for part in parts) > DEVICE_SHARE:
        return columns
    with tf.device("GPU:0"):
        return Columns(*tf.nest.map_structure(tf.identity, tuple(columns)))


class Chunk:
    """The train function of a learner.

    Args:
        learner: A compiled learner.
        step: The step that Keras's own train function takes, for what runs outside of XLA.
        own_logs: Whether the learner's class may add logs to those of its metrics.

    Attributes:
        columns: The examples that batches of indices are gathered from, where the iterator delivers
            indices; None where it delivers batches.
        known: What the host knows of all that the iterator delivers; steps that need not compute it
            have graphs of their own.
    """

    def __init__(
        self,
        learner: keras.Model,
        step: Callable[[Any], Any],
        own_logs: bool,
    ):
        self._learner, self._step, self._own_logs = learner, step, own_logs
        self.columns: Columns | None = None
        self.known = Known()
        self._plain: dict[Known, Callable[[Any], Any]] = {}
        self._take = _graph(self._taken, reduce_retracing=True)
        self._results = _graph(learner.get_metrics_result)
        self._programs: dict[Any, _Program] = {}
        self._compiled: set[tuple[_Program, int, int]] = set()

    def __call__(self, iterator: Any) -> Any:
        """Take the steps of one call, as many as `steps_per_execution`, and return their logs.

        Raises:
            StopIteration: There is no batch.
            UserError: XLA cannot compile the steps, and `compile` asked for it.
        """
        runs_plainly = self._learner.execution.under_xla is False and self.columns is None
        if runs_plainly or not _is_static(iterator):
            return self._plainly(iterator)
        left, logs = self._learner.steps_per_execution, None
        while left:
            count, batches, following = self._take(iterator, tf.constant(left))
            if not int(count):
                break
            logs = self._learn(batches, int(count), left)
            left -= int(count)
            if left and bool(following.has_value()):
                one = tf.nest.map_structure(lambda part: part[None], following.get_value())
                logs = self._learn(one, 1, left)
                left -= 1
        if logs is None:
            raise StopIteration
        return logs

    @property
    def compiled(self) -> int:
        """How many programs have been compiled, one for each number of steps and batch size."""
        return len(self._compiled)

    def _plainly(self, iterator: Any) -> Any:
        if self.known not in self._plain:
            learner, step = self._learner, _after_data(self._step)
            self._plain[self.known] = learner.devices.train_function(step)
        logs = self._plain[self.known](iterator)
        return logs if self._own_logs else self._results()

    def _learn(self, batches: Any, count: int, asked: int) -> Any:
        """Learn stacked batches: K of them at once, fewer of them one by one."""
        if self.columns is not None:
            batches = self._gather(*batches)
        program = self._program(batches)
        if count == self._learner.steps_per_execution == asked:
            return self._run(program, batches)
        logs = None
        for number in range(count):
            one = tf.nest.map_structure(lambda part, n=number: part[n : n + 1], batches)
            logs = self._run(program, one)
        return logs

    def _gather(self, index: tf.Tensor, weight: tf.Tensor) -> Any:
        """The batches of indices [count, B]: one gather, outside of the program of XLA."""
        assert self.columns is not None
        return self.columns.gather(index, weight)

    def _program(self, batches: Any) -> "_Program":
        spec = tf.nest.map_structure(
            lambda part: tf.TensorSpec([None, *part.shape[2:]], part.dtype), batches
        )
        key = str(spec), self.known
        if key not in self._programs:
            step, results = self._learner.train_step, self._learner.get_metrics_result
            self._programs[key] = _Program(step, results, spec, self._own_logs)
        return self._programs[key]

    def _run(self, program: "_Program", batches: Any) -> Any:
        if self._learner.execution.under_xla is False:
            return program.plain(batches)
        self._compiled.add((program, *tf.nest.flatten(batches)[0].shape[:2]))
        try:
            return program.compiled(batches)
        except REFUSALS as error:
            # Nothing of the program has run: it moves its variables when it ends.
            reason = _reason_of(error)
            if self._learner.execution.under_xla:
                raise UserError(
                    f"received jit_compile=True, but XLA cannot compile the step: {reason}; leave "
                    "jit_compile out, or change what it names"
                ) from error
            LOGGER.info("steps run without XLA, which cannot compile them: %s", reason)
            self._learner.execution.under_xla = False
            return program.plain(batches)

    def _taken(self, iterator: Any, most: tf.Tensor) -> tuple[tf.Tensor, Any, Any]:
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
                tf.ensure_shape(part, [None, *s.shape])
                for part, s in zip(stacked, parts, strict=True)
            ]
            return count, tf.nest.pack_sequence_as(spec, stacked), following


class _Program:
    """The steps of stacked batches of one form, under XLA and without it.

    Args:
        step: Of a batch, returns logs.
        results: Returns the results of metrics after the last step.
        spec: Of a batch.
        own_logs: As for `Chunk`.
    """

    def __init__(
        self,
        step: Callable[[Any], dict[str, Any]],
        results: Callable[[], dict[str, Any]],
        spec: Any,
        own_logs: bool,
    ):
        self._step, self._results = step, results
        stacked = tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype), spec)
        self._start = self._own_logs_of(spec) if own_logs else {}
        self.plain = _graph(self._steps, input_signature=[stacked])
        self.compiled = _graph(self._whole, input_signature=[stacked], jit_compile=True)

    def _whole(self, batches: Any) -> Any:
        with xla.program():
            return self._steps(batches)

    def _steps(self, batches: Any) -> Any:
        def step(number: tf.Tensor, logs: Any) -> Any:
            del logs
            found = self._step(tf.nest.map_structure(lambda part: part[number], batches))
            return number + 1, {name: found[name] for name in self._start}

        count = tf.shape(tf.nest.flatten(batches)[0])[0]
        start = {name: tf.zeros(s.shape, s.dtype) for name, s in self._start.items()}
        _, logs = tf.while_loop(
            lambda number, _: number < count, step, (0, start), parallel_iterations=1
        )
        return {**logs, **self._results()}

    def _own_logs_of(self, spec: Any) -> dict[str, Any]:
        """The logs that a step of a user's class adds to those of the metrics."""
        step = tf.function(self._step, [spec], autograph=False)
        found = step.get_concrete_function().structured_outputs
        known = self._results()
        return {name: value for name, value in found.items() if name not in known}


def _graph(function: Callable[..., Any], **arguments: Any) -> Any:
    """A graph of a function. TensorFlow would warn of many learners, whose graphs it counts as one
    function's."""
    graph = tf.function(function, autograph=False, **arguments)
    graph._omit_frequent_tracing_warning = True
    return graph


def _after_data(step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A step that begins when its batch has come.

    Where data of unknown length end, TensorFlow asks for one batch more, and would draw from the
    memory for it meanwhile.
    """

    def begin(data: Any) -> Any:
        parts = tf.nest.flatten(data, expand_composites=True)
        with tf.control_dependencies([part for part in parts if part is not None]):
            return step(data)

    return begin


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
    """What XLA says of the operation that it cannot compile, in a line."""
    text = str(getattr(error, "message", error))
    found = re.search(r"(?:unsupported operations|Detected unsupported)[^\n]*?: ([^\n]+)", text)
    return " ".join((found.group(1) if found else text.strip().split("\n")[0]).split())[:300]
