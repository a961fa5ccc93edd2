"""Checks of errors that would pass silently: labels, weights, heads, options, failed steps."""

import json
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import Batch, class_numbers, split_inputs
from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.gradients import half_squared_norm
from nccl_tf.memories.task_classes import entries_at
from nccl_tf.user_data import check_unmasked

UNNAMED = -(2**31)
"""The task of evaluated examples that come without one, for a learner with heads."""
MOST_TASKS = 2**31
"""Task ids are below it, so that other programs can hold them in 32 bits."""
MOST_STEPS = 2**31
"""Keras counts the steps of a call in int32."""
_OF_IDS = 2
"""Noted where an id of an embedding's row is wrong; 1 where something else is."""
SKIPS_IN_A_ROW = 10
"""After so many steps in a row without a finite loss and gradient, learning has failed."""

# ---- labels and tasks --------------------------------------------------------------------------


class WrongLabel:
    """A label that is no class of its task, or a wrong weight or task id, of an example.

    It is noted in the graph and raised when the call ends.

    A graph cannot raise a `UserError`, and the batches of a dataset never reach the host. It is no
    Keras object, because it is no state of the learner that holds it.

    Args:
        gather: From the part of a batch that was delivered here to the whole of it, as the devices
            of a learner gather it.
        alone: Whether one device takes a step, no replicas beside it.
    """

    def __init__(self, gather: Callable[[Batch], Batch], alone: bool) -> None:
        self._gather, self._alone = gather, alone
        # 1 where something was wrong, `_OF_IDS` where an id was, and the label or id, the task and
        # the bits of the weight.
        self._noted = keras.Variable(
            np.zeros(4, np.int64), dtype="int64", trainable=False, autocast=False, name="wrong"
        )

    def find(
        self,
        data: Any,
        batch: Batch,
        loss: Any,
        classes: int,
        table: np.ndarray | None,
        sizes: Sequence[int | None],
    ) -> tuple[Batch, tf.Tensor]:
        """Find the wrong labels, weights, task ids and ids of rows of a batch. Graph code.

        Args:
            data: `(x, labels)` or `(x, labels, weights)`, as Keras delivers it.
            batch: `learner.as_batch(data)`.
            loss: The learner's `ExampleLoss`.
            classes: How many there are.
            table: bool [tasks, classes], the classes of each task; None where a task may have any.
            sizes: Of the network's inputs, as `vocabularies` gives them.

        Returns:
            The batch, with labels, tasks and ids that can be looked up, and bool [n]: where
            something was wrong.
        """
        given = split_inputs(data[0])[1]
        right = (batch.weights >= 0) & (batch.weights < math.inf)  # NaN is neither
        # Numbers of 64 bits are compared before anything cuts them to 32.
        tasks = tf.cast(batch.tasks if given is None else given, tf.int64)
        labels = tf.zeros_like(tasks)
        if given is not None:
            right &= _is_below(tasks, MOST_TASKS)
        if loss.checks_labels:
            if loss.takes_class_numbers:
                check_label_dtype(data[1].dtype)
                check_is_one_number(data[1])
                labels = tf.cast(tf.reshape(data[1], [-1]), tf.int64)
            elif loss.is_one_unit:
                check_is_one_share(data[1])
                labels = _number_of_share(batch.labels)
            else:
                rows_to_numbers(data[1], classes)
                labels = tf.cast(class_numbers(batch.labels), tf.int64)
            if table is None:
                known = _is_below(labels, classes)
            else:
                known = entries_at(table, tasks, labels, outside=False)
                batch = batch._replace(tasks=tf.where(known, batch.tasks, 0))
            right &= known
            if loss.takes_class_numbers or loss.is_one_unit:
                batch = batch._replace(labels=tf.where(known, batch.labels, 0))
        elif loss.checks_places:
            check_label_dtype(data[1].dtype)
            rows = tf.reshape(tf.cast(data[1], tf.int64), [tf.shape(tasks)[0], -1])
            known = _is_below(rows, classes)
            places = batch.place_weights
            counted = loss.is_counted(rows) if places is None else places > 0
            if counted is not None:
                known |= ~tf.reshape(counted, tf.shape(rows))
            right &= tf.reduce_all(known, axis=1)
            labels = tf.gather(rows, tf.argmin(tf.cast(known, tf.int32), axis=1), batch_dims=1)
            known = tf.reshape(known, tf.shape(batch.labels))
            batch = batch._replace(labels=tf.where(known, batch.labels, 0))
        inputs, outside, ids = _known_ids(batch.inputs, sizes)
        counted = batch.weights != 0
        wrong = tf.cast(~right & counted, tf.int64)
        if ids is not None:
            batch = batch._replace(inputs=inputs)
            of_ids = _OF_IDS * tf.cast(outside & counted, tf.int64)
            wrong = tf.maximum(wrong, of_ids)
            labels = tf.where(outside, ids, labels)
        self._note(wrong, labels, tasks, batch.weights)
        return batch, wrong > 0

    def find_tasks(self, tasks: tf.Tensor, heads: int) -> tf.Tensor:
        """Tasks (int64 [n]) that there are heads for: 0 in place of others, which are noted."""
        known = _is_below(tasks, heads)
        whole, wrong = tf.cast(tasks, tf.int64), tf.cast(~known, tf.int64)
        self._note(wrong, tf.zeros_like(whole), whole, tf.ones_like(tasks, tf.float32))
        return tf.where(known, tasks, 0)

    def find_ids(self, inputs: Any, sizes: Sequence[int | None]) -> Any:
        """Inputs whose ids have a row: 0 in place of others, which are noted. Graph code.

        Args:
            inputs: [n, ...].
            sizes: As for `find`.
        """
        inputs, outside, ids = _known_ids(inputs, sizes)
        if ids is not None:
            wrong = _OF_IDS * tf.cast(outside, tf.int64)
            self._note(wrong, ids, tf.zeros_like(ids), tf.ones_like(ids, tf.float32))
        return inputs

    def refuse(
        self,
        classes: int,
        of_heads: np.ndarray | None,
        table: np.ndarray | None,
        sizes: Sequence[int | None],
    ) -> None:
        """Raise the error of what was noted, and forget it.

        Args:
            classes: How many there are.
            of_heads: bool [tasks, classes], the classes of each head; None for a single head.
            table: bool [tasks, classes], the labels that a task may have in training; None where it
                may have any.
            sizes: As for `find`.

        Raises:
            UserError: A label was no class of its task, a weight below 0, or an id out of range, of
                a task or of a row of an embedding.
        """
        is_wrong, label, task, bits = map(int, self._noted.numpy())
        if not is_wrong:
            return
        self._noted.assign(np.zeros(4, np.int64))
        if is_wrong == _OF_IDS:
            raise_no_row(label, min(size for size in sizes if size is not None))
        check_sample_weights(np.array([bits], np.int32).view(np.float32))
        if of_heads is not None:
            if task == UNNAMED:
                raise_no_task()
            if not 0 <= task < len(of_heads):
                raise_no_head(task, len(of_heads))
        for known in (table, of_heads):
            check_labels(np.array([label]), task, None, classes, known)
        check_ids_range(np.array([task]))

    def _note(
        self,
        wrong: tf.Tensor,
        labels: tf.Tensor,
        tasks: tf.Tensor,
        weights: tf.Tensor,
    ) -> None:
        # On one device the step has asked this already.
        is_any = tf.reduce_any(wrong > 0) if self._alone else None
        columns = Batch(wrong, labels, tasks, weights)
        wrong, labels, tasks, weights, _ = self._gather(columns)
        bits = tf.cast(tf.bitcast(weights, tf.int32), tf.int64)
        rows = tf.stack([wrong, labels, tasks, bits])
        # The first of those that are wrong, else what was noted before.
        first = tf.gather(rows, tf.argmax(wrong), axis=1)
        is_any = first[0] > 0 if is_any is None else is_any
        self._noted.assign(tf.where(is_any, first, self._noted.value))


def _known_ids(
    inputs: Any, sizes: Sequence[int | None]
) -> tuple[Any, tf.Tensor | None, tf.Tensor | None]:
    """Inputs whose ids have rows of embeddings, 0 in place of others. Graph code.

    Args:
        inputs: [n, ...].
        sizes: As for `WrongLabel.find`.

    Returns:
        The inputs; bool [n], which examples have another; and int64 [n], the first such id. None
        for both where no input is one of ids.
    """
    parts = tf.nest.flatten(inputs)
    outside, first = None, None
    for place, (part, size) in enumerate(zip(parts, sizes, strict=False)):
        if size is None or len(parts) != len(sizes) or not tf.as_dtype(part.dtype).is_integer:
            continue
        known = _is_below(tf.cast(part, tf.int64), size)
        parts[place] = tf.where(known, part, tf.zeros_like(part))
        flat = tf.reshape(known, [tf.shape(part)[0], -1])
        rows = tf.reshape(tf.cast(part, tf.int64), tf.shape(flat))
        ids = tf.gather(rows, tf.argmin(tf.cast(flat, tf.int32), axis=1), batch_dims=1)
        wrong = ~tf.reduce_all(flat, axis=1)
        first = ids if outside is None else tf.where(outside, first, ids)
        outside = wrong if outside is None else outside | wrong
    return tf.nest.pack_sequence_as(inputs, parts), outside, first


def check_ids(inputs: Any, sizes: Sequence[int | None]) -> None:
    """Check that embeddings have a row for each id of inputs that the host has.

    Args:
        inputs: Arrays [n, ...]; anything else is left alone.
        sizes: Of the network's inputs, as `vocabularies` gives them.

    Raises:
        UserError: One has none.
    """
    parts = tf.nest.flatten(inputs)
    for part, size in zip(parts, sizes, strict=False):
        is_array = isinstance(part, (np.ndarray, tf.Tensor)) and len(parts) == len(sizes)
        if size is None or not is_array or not tf.as_dtype(part.dtype).is_integer:
            continue
        ids = np.asarray(part)
        outside = (ids < 0) | (ids >= size)
        if outside.any():
            raise_no_row(int(ids[outside][0]), size)


def raise_no_row(number: int, size: int) -> None:
    """Raise UserError: an embedding of so many rows has none for an id."""
    raise UserError(
        f"received the id {number}, expected numbers from 0 to {size - 1}, one for each row of the "
        "network's embedding: correct the ids, or give keras.layers.Embedding more rows"
    )


def _is_below(numbers: tf.Tensor, count: int) -> tf.Tensor:
    """bool [n]: which of some integers are from 0 to count - 1."""
    return (numbers >= 0) & (numbers < count)


def check_labels(
    labels: Any, tasks: Any, weights: Any, num_classes: int, table: np.ndarray | None
) -> None:
    """Check that labels are classes that the learner has for the tasks of their examples.

    Args:
        labels: Arrays [n] or [n, 1]; anything else is left alone.
        tasks: int [n] or a scalar; None where they are not known.
        weights: [n], 0 for padding, which may have any label; None for no padding.
        num_classes: Logits of the network.
        table: bool [tasks, classes], the classes of each task; None where a task may have any.

    Raises:
        UserError: Labels are no whole numbers, or one is no class of its task.
    """
    if not isinstance(labels, (np.ndarray, tf.Tensor)):
        return
    check_label_dtype(labels.dtype, labels)
    labels = np.asarray(labels).reshape(-1)
    counted = np.ones(labels.shape, bool)
    if weights is not None and np.size(weights) == labels.size:
        counted = np.asarray(weights).reshape(-1) != 0
    # Labels of 64 bits are compared before anything cuts them to 32.
    outside = counted & ((labels < 0) | (labels >= num_classes))
    if outside.any():
        remedy = "renumber the classes, or let the network grow with learner.add_classes"
        if num_classes == 1:
            remedy = (
                "give the network two outputs, or compile with BinaryCrossentropy(from_logits=True)"
            )
        raise UserError(
            f"received the label {labels[outside.argmax()]}, expected class numbers from 0 to "
            f"{num_classes - 1}, one for each output of the network: {remedy}"
        )
    if table is None or tasks is None or not labels.size:
        return
    tasks = np.asarray(tasks)
    tasks = np.broadcast_to(tasks.reshape(-1), labels.shape) if tasks.size == 1 else tasks
    tasks = tasks.reshape(-1)
    if tasks.size != labels.size:
        return  # Keras refuses arrays of several lengths.
    unknown = counted & ((tasks < 0) | (tasks >= len(table)))
    if unknown.any():
        raise UserError(
            f"received an example of task {tasks[unknown.argmax()]}, but the learner knows the "
            f"classes of {len(table)} tasks: pass the classes of every task as `heads` and to the "
            "memory"
        )
    labels = labels.astype(np.int32)
    outside = counted & ~table[np.where(counted, tasks, 0), np.where(counted, labels, 0)]
    if outside.any():
        first = outside.argmax()
        classes = np.flatnonzero(table[tasks[first]]).tolist()
        raise UserError(
            f"received the label {labels[first]} in task {tasks[first]}, whose classes are "
            f"{classes} in the learner's heads or its memory's task_classes: correct the label, "
            "the task or these classes"
        )


def check_numbers(labels: Any, weights: Any, loss: Any, num_classes: int) -> None:
    """Check class numbers, of examples or at each of their places, that the loss does not ignore.

    Args:
        labels: Arrays [n, ...]; anything else is left alone.
        weights: [n], or of places, 0 for what may have any number; None for 1 each.
        loss: The learner's `ExampleLoss`.
        num_classes: Logits of the network.

    Raises:
        UserError: As for `check_labels`.
    """
    if not isinstance(labels, (np.ndarray, tf.Tensor)):
        return
    numbers = np.asarray(labels)
    counted = np.ones(numbers.shape, bool)
    if weights is not None:
        given = np.asarray(weights) != 0
        if given.shape != numbers.shape[: given.ndim]:
            return  # Keras refuses arrays of several lengths, and a batch weights of other places.
        counted &= given.reshape(*given.shape, *[1] * (numbers.ndim - given.ndim))
    # A stream makes float32 of all targets that are no class of an example.
    if numbers.dtype.kind == "f" and np.all(numbers[counted] % 1 == 0):
        numbers = np.where(counted, numbers, 0).astype(np.int64)
    kept = loss.is_counted(numbers)
    check_labels(numbers, None, counted if kept is None else counted & kept, num_classes, None)


def check_label_dtype(dtype: Any, labels: Any = None) -> None:
    """Check that labels are whole numbers.

    Args:
        dtype: Theirs, NumPy's or TensorFlow's.
        labels: Their values, where the host has them.

    Raises:
        UserError: They are not.
    """
    kind = tf.as_dtype(dtype)
    if kind == tf.string:
        raise UserError(
            "received labels of dtype string, expected whole class numbers: number them, those of "
            "training and test examples together, with np.unique(labels, return_inverse=True)[1]"
        )
    if not (kind.is_integer or kind.is_bool):
        # As integers they would be classes, the least number there is or 0.
        missing = 0 if labels is None else int(np.sum(~np.isfinite(np.asarray(labels))))
        if missing:
            raise UserError(
                f"received {missing} labels of dtype {kind.name} that are NaN or infinite, "
                "expected whole class numbers: leave out the examples that have none, and then "
                'make the labels integers again, labels.astype("int32")'
            )
        raise UserError(
            f"received labels of dtype {kind.name}, expected whole class numbers: convert them "
            'with labels.astype("int32"), or name the loss that they are for in compile, such as '
            'loss="mse" for numbers'
        )


def check_sample_weights(weights: Any) -> None:
    """Check the weights of examples.

    Args:
        weights: [n].

    Raises:
        UserError: One is below 0, no number of float32, or masked.
    """
    check_unmasked(weights, "sample_weight")
    weights = np.asarray(weights)
    counted = (weights >= 0) & (weights <= np.finfo(np.float32).max)
    if not counted.all():
        raise UserError(
            f"received the weight {weights[~counted][0]} of an example, expected a finite number "
            "of 0 or more: 0 leaves an example out; correct sample_weight"
        )


def check_is_one_number(labels: Any) -> None:
    """Check that labels are class numbers [n] or [n, 1].

    Raises:
        UserError: They have further sides.
    """
    sides = tf.TensorShape(getattr(labels, "shape", [None]))[1:]
    if sides.is_fully_defined() and sides.num_elements() != 1:
        raise UserError(
            f"received labels of shape {tuple(labels.shape)}, expected class numbers [n]: for "
            "one-hot rows name loss=keras.losses.CategoricalCrossentropy(from_logits=True) in "
            "compile"
        )


def check_is_one_share(labels: Any) -> None:
    """Check that labels are numbers [n] or [n, 1], for one output that says class 1 of two.

    Raises:
        UserError: They have further sides, or are text.
    """
    dtype = getattr(labels, "dtype", None)
    if dtype is not None and tf.as_dtype(dtype) == tf.string:
        check_label_dtype(dtype)
    sides = tf.TensorShape(getattr(labels, "shape", [None]))[1:]
    if sides.is_fully_defined() and sides.num_elements() != 1:
        raise UserError(
            f"received labels of shape {tuple(labels.shape)} for a network with one output, "
            "expected 0 or 1 for each example, [n]: give the network an output for each label"
        )


def shares_to_numbers(labels: Any, weights: Any) -> Any:
    """The class numbers int64 [n] of targets from 0 to 1; what is no array is left alone.

    Args:
        labels: [n] or [n, 1].
        weights: [n], 0 for what may have any target; None for 1 each.

    Raises:
        UserError: A target is missing, or outside of 0 to 1.
    """
    if not isinstance(labels, (np.ndarray, tf.Tensor)):
        return labels
    check_is_one_share(labels)
    shares = np.asarray(labels).reshape(-1).astype(float)
    counted = np.ones(shares.shape, bool)
    if weights is not None and np.size(weights) == shares.size:
        counted = np.asarray(weights).reshape(-1) != 0
    outside = counted & ~((shares >= 0) & (shares <= 1))
    if outside.any():
        raise UserError(
            f"received the label {shares[outside.argmax()]:g} for a network with one output, "
            "expected 0 or 1, the class of each example, or a share between them: leave out "
            "examples without a label, or give the network an output for each class and compile "
            "without a loss"
        )
    return (shares > 0.5).astype(np.int64)


def _number_of_share(shares: tf.Tensor) -> tf.Tensor:
    """int64 [n]: the class of a target from 0 to 1, else a number that is no class. Graph code."""
    rounded = tf.where(shares > 1, tf.math.ceil(shares), tf.math.floor(shares))
    outside = (shares < 0) | (shares > 1)  # NaN is not: the loss is, and the step is skipped
    return tf.where(outside, tf.cast(rounded, tf.int64), class_numbers(shares))


def rows_to_numbers(labels: Any, num_classes: int) -> Any:
    """The class numbers of one-hot rows [..., classes]; symbolic ones are checked and left alone.

    Raises:
        UserError: They are no rows of so many classes.
    """
    if not isinstance(labels, (np.ndarray, tf.Tensor)):
        return labels
    if len(labels.shape) < 2 or labels.shape[-1] not in (num_classes, None):
        raise UserError(
            f"received labels of shape {tuple(labels.shape)} for a loss that takes one-hot rows, "
            f"expected [n, {num_classes}]: convert them with keras.utils.to_categorical, or take "
            "the sparse loss"
        )
    return labels if tf.is_symbolic_tensor(labels) else np.asarray(labels).argmax(axis=-1)


def check_task_id(task_id: Any) -> None:
    """Check that a task is named by a whole number from 0, below 2**31.

    Raises:
        UserError: It is not.
    """
    try:
        if 0 <= operator.index(task_id) < MOST_TASKS:
            return
    except TypeError:
        pass
    raise UserError(
        f"received task_id={task_id!r}, expected a whole number from 0, the task's place in the "
        "stream, below 2**31"
    )


def check_ids_range(tasks: Any) -> None:
    """Check that task ids are numbers that a memory can hold, before anything cuts them to 32 bits.

    Args:
        tasks: int [n], of any leading dimensions, or a scalar; None where there are none.

    Raises:
        UserError: One is below 0, or 2**31 or above.
    """
    ids = np.asarray(0 if tasks is None else tasks).reshape(-1)
    outside = (ids < 0) | (ids >= MOST_TASKS)
    if outside.any():
        raise UserError(
            f"received an example of task {ids[outside.argmax()]}, expected whole numbers from 0, "
            "the task's place in the stream, below 2**31"
        )


def raise_no_head(task_id: Any, count: int) -> None:
    """Raise UserError: there is no head for a task among those of `count` tasks."""
    raise UserError(
        f"received task {task_id}, but the learner has heads for {count} tasks: pass the classes "
        "of every task as `heads`, or add a head with learner.add_classes"
    )


def raise_no_task() -> None:
    """Raise UserError: nothing names the task of examples to a learner with heads."""
    raise UserError(
        "received examples without their task for a learner with a head for each task: "
        'pass task_id=..., or x as {"inputs": inputs, "task": task ids}'
    )


# ---- options, compile and files ----------------------------------------------------------------


def is_plain_sgd(optimizer: Any) -> bool:
    """Whether a step is along the gradient alone: SGD without momentum and weight decay."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return type(inner) is keras.optimizers.SGD and not (inner.momentum or inner.weight_decay)


def check_rate_is_finite(optimizer: Any) -> None:
    """Check the learning rate of the next step.

    Raises:
        UserError: It is infinite or NaN.
    """
    rate = float(tf.convert_to_tensor(optimizer.learning_rate))
    if not math.isfinite(rate):
        raise UserError(
            f"received the learning rate {rate:g}, which makes every weight infinite or NaN: "
            "expected a finite number, such as keras.optimizers.SGD(0.1)"
        )


def as_list(metrics: Any) -> list[Any]:
    """The metrics that `compile` received.

    Args:
        metrics: A sequence, or None for none.

    Raises:
        UserError: They are no sequence.
    """
    if metrics is None:
        return []
    if isinstance(metrics, Sequence) and not isinstance(metrics, str):
        return list(metrics)
    one = repr(metrics) if isinstance(metrics, (str, dict)) else type(metrics).__name__
    raise UserError(
        f"received metrics={one}, expected a list for the one output of the network, such as "
        'metrics=["accuracy"]'
    )


def as_optimizer(optimizer: Any) -> keras.optimizers.Optimizer:
    """The optimizer that `compile` received.

    Args:
        optimizer: One of Keras, its name or its configuration.

    Raises:
        UserError: It is something else, such as a class.
    """
    try:
        made = keras.optimizers.get(optimizer)
    except (KeyError, TypeError, ValueError):
        made = None
    if made is not None:
        return made
    is_class = isinstance(optimizer, type)
    name = f"the class {optimizer.__name__}" if is_class else repr(optimizer)
    raise UserError(
        f"received {name} as optimizer, expected an object, such as keras.optimizers.SGD(0.1), or "
        "the name of one"
    )


def check_compile(
    steps_per_execution: Any, jit_compile: Any, loss_weights: Any = None, **switches: Any
) -> None:
    """Check the form of options of `compile`.

    Args:
        steps_per_execution: A whole number from 1, below 2**31, or None.
        jit_compile: True, False, None or "auto".
        loss_weights: None.
        **switches: Options that are True or False.

    Raises:
        UserError: One has another form.
    """
    steps = steps_per_execution
    is_count = isinstance(steps, (int, np.integer)) and not isinstance(steps, bool)
    if steps is not None and not (is_count and 1 <= steps < MOST_STEPS):
        raise UserError(
            f"received steps_per_execution={steps!r}, expected a whole number from 1, below 2**31, "
            "or None for a number that fit chooses"
        )
    for name, value in switches.items():
        if not isinstance(value, (bool, np.bool_)):
            raise UserError(f"received {name}={value!r}, expected True or False")
    is_name = isinstance(jit_compile, str) and jit_compile == "auto"
    if jit_compile is not None and not is_name and not isinstance(jit_compile, (bool, np.bool_)):
        raise UserError(
            f'received jit_compile={jit_compile!r}, expected True, False, None or "auto"'
        )
    if loss_weights is not None:
        raise UserError(
            f"received loss_weights={loss_weights!r}, expected None, because there is one loss for "
            "the one output of the network: weigh its parts in a loss that splits targets and "
            "outputs, as docs/several_outputs.md shows, and classes or examples by class_weight or "
            "sample_weight of fit"
        )


def trained(variables: Sequence[keras.Variable]) -> list[tuple[int, bool]]:
    """Which variables an optimizer is built for: their ids, and whether gradients overwrite them.

    It has no slots for those.
    """
    return [(id(v), v.overwrite_with_gradient) for v in variables]


def check_trainable(
    variables: Sequence[keras.Variable], compiled_with: Any, made_with: Any, name: str, reason: str
) -> None:
    """Check that the same variables are trained as when the learner was compiled.

    Args:
        variables: Those that are trained.
        compiled_with: What `trained` gave then; None before it.
        made_with: The ids of the variables that were trained when the learner was made.
        name: The learner's class, for the message.
        reason: Why others cannot be trained than when it was made; "" where they can.

    Raises:
        UserError: Layers were frozen, or freed, since; or since the learner was made, where there
            is a reason.
    """
    now = trained(variables)
    if reason and made_with != [key for key, _ in now]:
        raise UserError(
            f"received a network whose trainable layers have changed since the {name} was made, "
            f"which {reason}: make the same layers trainable, or make the {name} again"
        )
    check_built_for(now, compiled_with)


def check_built_for(now: Any, compiled_with: Any) -> None:
    """Check that an optimizer is built for variables.

    Args:
        now: What `trained` gives of them.
        compiled_with: What it gave at `compile`; None before it.

    Raises:
        UserError: It is not.
    """
    if compiled_with is not None and compiled_with != now:
        raise UserError(
            "received a network whose trainable layers, or the overwrite_with_gradient of its "
            "variables, have changed since compile: call compile again, with a new optimizer"
        )


def check_no_lambda(compiled: dict[str, Any]) -> None:
    """Check that Keras's safe mode loads what a learner was compiled with.

    Args:
        compiled: Its `get_compile_config`.

    Raises:
        UserError: The loss or a metric is a lambda.
    """
    if '"__lambda__"' in json.dumps(compiled, default=repr):
        raise UserError(
            "received a model to save whose loss or metric is a lambda, which Keras's safe mode "
            "does not load: write it as def loss(y_true, y_pred) under "
            "@keras.saving.register_keras_serializable(), and compile again"
        )


def check_grows_in_a_file(network: keras.Model, classes: int, before: int) -> None:
    """Check that a network in a file has as many outputs as its learner.

    Args:
        network: The network.
        classes: The current ones.
        before: Those that it was made with.

    Raises:
        UserError: It has not.
    """
    if classes == before:
        return
    try:
        again = type(network).from_config(network.get_config())
    except TypeError:  # A class that is not registered, which Keras names where it loads.
        return
    if again.output_shape[-1] != classes:
        raise UserError(
            f"received a learner to save whose network has grown to {classes} classes, "
            f"but its get_config still has the first {before}: return the current "
            "units of the last layer from get_config of your class"
        )


# ---- steps -------------------------------------------------------------------------------------


def gradient_size(gradients: Sequence[tf.Tensor]) -> tf.Tensor:
    """float32 scalar that is finite only where every entry of the gradients is."""
    if not gradients:  # of a method that learns statistics
        return tf.zeros(())
    return tf.add_n([tf.cast(half_squared_norm(g), tf.float32) for g in gradients])


def check_learns(parts: Sequence[Any]) -> None:
    """Check that there is a weight to learn.

    Args:
        parts: The trainable variables.

    Raises:
        UserError: There is none.
    """
    if not parts:
        raise UserError(
            "received a network without trainable weights: set trainable = True on the layers to "
            "train, and compile again"
        )


def check_weights(network: keras.Model) -> None:
    """Check that the network's weights are finite: no step is, from weights that are not.

    Raises:
        LearningFailedError: One is not.
    """
    for weight in network.weights:
        is_float = keras.backend.is_float_dtype(weight.dtype)
        if is_float and not np.isfinite(keras.ops.convert_to_numpy(weight)).all():
            raise LearningFailedError(
                f"the weight {weight.path} is infinite or NaN, and nothing more is learned: build "
                "the network again, or load its weights, and take a lower rate"
            )
