"""What a learner keeps of examples in its memories, and in files."""

from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from nccl_tf.batch import PLACE_WEIGHTS, Batch
from nccl_tf.errors import UserError
from nccl_tf.learner import checks
from nccl_tf.learner.columns import Column, Extras, extras_of
from nccl_tf.memories.columns import missing_columns


class Storage:
    """The columns of a learner's memories, their shapes, and when examples are stored.

    Args:
        learner: The learner.
        stores: "first_epoch" or "every_epoch", when memories store an example of a `fit`, and
            statistics of examples count it.

    Attributes:
        stores: The argument.
        is_open: bool scalar, whether examples that come now are stored and counted. It is no state.
        saves_memory: Whether files of the learner, those of callbacks too, have the memory's
            examples; may be set.
    """

    def __init__(self, learner: keras.Model, stores: str) -> None:
        self._learner, self.stores = learner, stores
        self._built_classes = learner.num_classes
        self.saves_memory = True
        self.is_open = keras.Variable(
            True, dtype="bool", trainable=False, autocast=False, name="storage_is_open"
        )

    def set_open(self, is_open: bool) -> None:
        """Choose whether examples that come from now on are stored and counted.

        `Learner.fit` does so where an epoch begins.
        """
        self.is_open.assign(is_open)
        for memory in self._learner.memories():
            memory.set_stores(is_open)

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """All state that learning depends on: weights, memory, generators, optimizer and counters.

        The step log has a state of its own (`StepLog.state`).
        """
        learner = self._learner
        for memory in learner.memories():
            memory.blank_spare_row()
        variables = [*learner.variables, *learner.optimizer.variables]
        variables += [v for memory in learner.memories() for v in memory.variables]
        return {f"{i:04d} {v.name}": v for i, v in enumerate(variables)}

    @property
    def columns(self) -> Mapping[str, Column]:
        """Those of the method and of the options, by name."""
        return {**self._learner.columns, **self._learner.options.columns}

    @property
    def extras(self) -> Extras:
        """Shape and dtype of the columns, at the classes of now."""
        return self._extras(self._learner.network.output_shape[1:-1])

    @property
    def waits(self) -> bool:
        """Whether a memory waits for first examples, which tell its shapes."""
        return any(not memory.is_allocated for memory in self._learner.memories())

    def check(self, columns: Mapping[str, Column]) -> None:
        """Check that the memory has a place for columns.

        Raises:
            UserError: It has not.
        """
        learner = self._learner
        if learner.memory is None or not columns:
            return
        wanted = extras_of(columns, learner.num_classes, learner.network.output_shape[1:-1])
        for column in missing_columns(learner.memory, wanted):
            raise UserError(
                f"received a {type(learner.memory).__name__} without the column {column!r} with "
                f"entries of shape {tuple(wanted[column][0])}, which {type(learner).__name__} "
                f"keeps of an example: build it with extras={wanted}, or without shapes"
            )

    def check_saves(self) -> None:
        """Check that a saved learner can be loaded as the same one, as far as can be told.

        Raises:
            UserError: As for `Learner.save`.
        """
        learner = self._learner
        learner.options.check("saved")
        checks.check_no_lambda(learner.get_compile_config() or {})
        checks.check_grows_in_a_file(learner.network, learner.num_classes, self._built_classes)
        learner.get_config()

    def build(self, batch: Batch, task_classes: Sequence[Sequence[int]] | None = None) -> None:
        """Allocate the memories that were built without shapes.

        Args:
            batch: Examples, as `Learner.as_batch` makes them; their number does not matter.
            task_classes: The classes of each task, where there are no heads to tell.
        """
        learner = self._learner
        if learner.heads is not None:
            task_classes = learner.heads.classes
        for memory in learner.memories():
            if not memory.is_allocated:
                # There is a column's entry at each place of the targets.
                places = batch.labels.shape[1 : len(learner.network.output_shape) - 1]
                if kept := memory.extras.keys() & self.columns:
                    extras = self._extras(places)
                    memory.change_extras({**memory.extras, **{n: extras[n] for n in kept}})
                if batch.place_weights is not None:
                    memory.change_extras({**memory.extras, **_place_column(batch.place_weights)})
                # Variables are made outside of the graph that a first batch is traced in.
                with tf.init_scope(), learner.distribute_strategy.scope():
                    memory.build_for(batch, task_classes)

    def completed(self, batch: Batch) -> Batch:
        """A batch with weights of places where the memory keeps some: 1, unless it has its own.

        Raises:
            UserError: It has some, and the memory has no column for them.
        """
        memory = self._learner.memory
        if memory is None:
            return batch
        column = memory.extras.get(PLACE_WEIGHTS)
        if batch.place_weights is not None and column is None:
            raise UserError(
                f"received weights of places, and a {type(memory).__name__} without a column "
                "for them: give the first fit some too, such as ones, or build the memory with "
                f"extras={_place_column(batch.place_weights)}"
            )
        if batch.place_weights is None and column is not None:
            shape = tf.shape(batch.labels)[: self._learner.example_loss.place_axes + 1]
            batch = batch.with_place_weights(tf.ones(shape))
        return batch

    def _extras(self, places: Sequence[int | None]) -> Extras:
        return extras_of(self.columns, self._learner.num_classes, places)


def _place_column(weights: tf.Tensor) -> Extras:
    """The column of a memory for weights of places [n, places, ...]."""
    return {PLACE_WEIGHTS: (tuple(weights.shape[1:].as_list()), "float32")}
