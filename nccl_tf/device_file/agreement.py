"""Whether a file learns what Keras learns, step by step from equal states."""

from typing import Any

import numpy as np
import tensorflow as tf

from nccl_tf.device_file.layout import Layout
from nccl_tf.device_file.program import Program
from nccl_tf.device_file.runtime import interpreter
from nccl_tf.errors import UserError

TOLERANCE = 1e-5
"""Of floats, times their largest value where that is above 1."""
SIZES = {"lambda": ("memory_gradient_norm", "stream_gradient_norm")}
"""Of a log whose terms cancel, the logs whose product is its size; others are their own."""


def checked_difference(program: Program, layout: Layout, content: bytes, steps: int) -> float:
    """How far a file's steps are from those of its learner, which is left as it was.

    Half of the steps are in the task that is open or comes next, the others in the one after it,
    whose beginning and end are compared too; each begins from the state that Keras has.

    Args:
        program: The learner's functions.
        layout: Of its state.
        content: The file.
        steps: How many steps.

    Returns:
        The largest difference of floats, over their largest value where that is above 1: over the
        product of both norms for Lambda, whose terms cancel.

    Raises:
        UserError: LiteRT does not run the file, or it learns something else.
    """
    values = [variable.numpy() for variable in program.captured]
    try:
        comparison = _Comparison(program, layout, content)
        first = steps - steps // 2
        comparison.of_tasks("begin_task")
        for number in range(first):
            comparison.of_step(number)
        comparison.of_prediction()
        comparison.of_tasks("end_task")
        if comparison.begins_another():
            comparison.of_tasks("begin_task")
            for number in range(first, steps):
                comparison.of_step(number)
        return comparison.largest
    finally:
        for variable, value in zip(program.captured, values, strict=True):
            variable.assign(value)


class _Comparison:
    def __init__(self, program: Program, layout: Layout, content: bytes):
        self._program, self._layout = program, layout
        self._random = np.random.default_rng(program.learner.seed)
        self._name = type(program.learner).__name__
        self.largest = 0.0
        try:
            made = interpreter(content)
            self._runners = {n: made.get_signature_runner(n) for n in made.get_signature_list()}
        except (RuntimeError, ValueError) as error:
            raise self._does_not_run(error) from error
        self._interpreter = made  # Its runners do not keep it.
        if not np.array_equal(self._run("save")["state"], layout.pack()):
            raise UserError(f"{self._name} is not in the file as it is: report this as a fault")

    def of_tasks(self, name: str) -> None:
        """Compare what a task's beginning or end changes."""
        self._restore()
        found = self._run(name)
        wanted = self._program.functions[name]()
        self._compare_outputs(found, wanted)
        self._compare_states(f"after {name}")

    def of_step(self, number: int) -> None:
        """Compare one step on examples made for it, the last one of them padding."""
        columns = self._examples()
        self._restore()
        found = self._run("train", **columns)
        wanted = self._program.train(*map(tf.constant, columns.values()))
        self._compare_outputs(found, wanted)
        self._compare_states(f"after step {number + 1}")

    def of_prediction(self) -> None:
        """Compare outputs."""
        program = self._program
        columns = {spec.name: self._inputs(spec) for spec in program._to_predict}
        if program.learner.heads is not None:
            columns[program.tasks.name] = np.zeros(program.tasks.shape, np.int32)
        self._restore()
        found = self._run("infer", **columns)
        wanted = program.infer(*map(tf.constant, columns.values()))
        self._compare_outputs(found, wanted)

    def begins_another(self) -> bool:
        """Whether there is a further task to begin."""
        table = self._program.learner._class_table()
        ended = int(self._program.learner.progress.task.numpy()) + 1
        return table is None or ended < len(table)

    def _examples(self) -> dict[str, np.ndarray]:
        program, learner = self._program, self._program.learner
        table, task = learner._class_table(), int(learner.progress.task.numpy())
        known = np.arange(learner.num_classes) if table is None else np.flatnonzero(table[task])
        spec = program.labels
        if learner.example_loss.takes_class_numbers:
            labels = self._random.choice(known, spec.shape)
        elif learner.example_loss.has_classes and not learner.example_loss.is_one_unit:
            labels = np.eye(learner.num_classes)[self._random.choice(known, spec.shape[0])]
        else:
            labels = self._random.integers(0, 2, spec.shape)
        columns = {each.name: self._inputs(each) for each in program.inputs}
        columns[spec.name] = np.asarray(labels, spec.dtype.as_numpy_dtype)
        weights = np.ones(program.weights.shape, np.float32)
        weights[1:][-1:] = 0
        return {**columns, program.weights.name: weights}

    def _inputs(self, spec: tf.TensorSpec) -> np.ndarray:
        if spec.dtype == tf.uint8:
            return self._random.integers(0, 256, spec.shape, np.uint8)
        if spec.dtype.is_integer or spec.dtype.is_bool:
            return self._random.integers(0, 2, spec.shape).astype(spec.dtype.as_numpy_dtype)
        return self._random.uniform(0, 1, spec.shape).astype(np.float32)

    def _restore(self) -> None:
        if not self._run("restore", state=self._layout.pack())["ok"]:
            raise UserError(f"the file of {self._name} does not take its own state: report this")

    def _run(self, name: str, **columns: np.ndarray) -> dict[str, np.ndarray]:
        try:
            return self._runners[name](**columns)
        except (RuntimeError, ValueError) as error:
            raise self._does_not_run(error) from error

    def _does_not_run(self, error: Exception) -> UserError:
        return UserError(
            f"received a {self._name} to export that LiteRT does not run: "
            f"{str(error).splitlines()[0][:300]}"
        )

    def _compare_outputs(self, found: Any, wanted: Any) -> None:
        for name, value in wanted.items():
            factors = [wanted[factor].numpy() for factor in SIZES.get(name, (name,))]
            self._compare(name, np.asarray(found[name]), value.numpy(), np.prod(factors, axis=0))

    def _compare_states(self, when: str) -> None:
        wanted = self._blanked()
        variables = self._layout.variables
        state = self._run("save")["state"].tobytes()
        kept = [variable.numpy() for variable in variables]
        for variable, value in zip(variables, self._layout.unpack(state, "it"), strict=True):
            variable.assign(value)
        found = self._blanked()
        for variable, value in zip(variables, kept, strict=True):
            variable.assign(value)
        for part, one, other in zip(self._layout.parts, found, wanted, strict=True):
            self._compare(f"{part.name} {when}", one, other)

    def _blanked(self) -> list[np.ndarray]:
        """The state without what the spare rows of memories hold, into which any row may come."""
        for memory in self._program.learner.memories():
            memory.blank_spare_row()
        return [variable.numpy() for variable in self._layout.variables]

    def _compare(
        self, what: str, found: np.ndarray, wanted: np.ndarray, sizes: np.ndarray | None = None
    ) -> None:
        if wanted.dtype.kind != "f":
            differs, by = not np.array_equal(found, wanted), "in its integers"
        else:
            is_known = np.isfinite(wanted)
            sizes = np.abs(wanted if sizes is None else sizes)
            size = np.max(sizes[is_known], initial=1.0)
            difference = float(np.max(np.abs(found - wanted)[is_known], initial=0.0) / size)
            same = np.array_equal(found[~is_known], wanted[~is_known], equal_nan=True)
            # Of a value that is not finite the difference is NaN.
            differs = not (same and difference <= TOLERANCE)
            by = f"by {difference:.2g}, more than {TOLERANCE:g}" if same else "in what is infinite"
            self.largest = max(self.largest, difference)
        if differs:
            raise UserError(
                f"received a {self._name} whose file does not learn what Keras does: {what} differ "
                f"{by}; nothing is written: report the learner, or take other layers"
            )
