"""The data, callbacks and steps per call of `fit` and `evaluate`."""

import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import (
    check_not_ragged,
    check_one_target,
    check_task_ids,
    split_inputs,
)
from nccl_tf.errors import LearningFailedError, UserError, check_name
from nccl_tf.learner.checks import check_weights, raise_no_head, raise_no_task
from nccl_tf.networks.inspection import has_convolutions
from nccl_tf.streams.arrays import LEAST_SHARE, as_array, check_unmasked
from nccl_tf.streams.datasets import told_names
from nccl_tf.streams.epochs import EpochBatches
from nccl_tf.streams.stream import Stream
from nccl_tf.streams.task import JointTask, Task

LOGGER = logging.getLogger("nccl_tf")

BATCH_SIZE = 10
"""Examples in a batch of a task, where the user names no number: that of `Task.train_batches`."""
DENSE_STEPS, CONVOLUTION_STEPS = 200, 50
"""The most steps in one call, where the user names no number.

A call costs as much as some six steps of a small dense network, and a signal or a checkpoint, which
waits for its end, should not wait long.
"""
LOGS = ("metrics", "all")
CHECK_EVERY = 50
"""Batches between two looks at the learner's counters, which wait for the device."""
MOST = 5
"""The root mean square of inputs that a network's first layer should not pass on: little is learned
from more at usual rates, where that of standardised columns is 1, whatever their largest value."""

if TYPE_CHECKING:
    from nccl_tf.learner.learner import Learner
_FREQUENCIES = ("update_freq", "log_freq", "save_freq")
"""Attributes of callbacks, Keras's and those of W&B, that name a number of batches."""
_FORMS = (keras.layers.InputLayer, keras.layers.Flatten, keras.layers.Reshape)

# ---- steps in a call ---------------------------------------------------------------------------


def convolves(network: keras.Model) -> bool:
    """Whether a pass of a network takes as long as convolutions do."""
    return has_convolutions(network, frozen=True)


def most_steps(network: keras.Model) -> int:
    """The most steps in one call of the graph that is fast and not long."""
    return CONVOLUTION_STEPS if convolves(network) else DENSE_STEPS


def steps_per_execution(
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
        current: The number of now.
        batches: Of an epoch; None where it is not known.
        steps_per_epoch: As `fit` received it.
        callbacks: Those of `fit`.
        asked: Whether the user has named `most` in `compile`.
        is_fixed: Whether a smaller number than `most` has a price, whatever the epoch's length.

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


def whole_epoch(batches: int | None, callbacks: Iterable[Any]) -> int | None:
    """Batches of an epoch, of which a fit may take the rest alone.

    The steps of a call follow from the whole, so that calls end where they would have ended in a
    training that was not stopped: XLA rounds the steps of another program otherwise.

    Args:
        batches: Of the fit.
        callbacks: Those of the fit; one with `whole_epoch` says what it takes the rest of.
    """
    return next((c.whole_epoch for c in callbacks if hasattr(c, "whole_epoch")), batches)


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


def first_pass(initial_epoch: int, batches: int | None, steps_per_epoch: int | None) -> range:
    """The epochs of a `fit` that are its first pass over the data.

    Args:
        initial_epoch: The number of the first epoch.
        batches: Of the data; None where it is not known, as of a generator.
        steps_per_epoch: As `fit` received it: Keras goes on with the data in the next epoch, and
            begins again in the one after that in which they ended.
    """
    if steps_per_epoch is None:
        return range(initial_epoch, initial_epoch + 1)
    if batches is None:
        return range(initial_epoch, sys.maxsize)
    return range(initial_epoch, initial_epoch - (-batches // steps_per_epoch))


def count_batches(x: Any, batch_size: int | None, validation_split: float = 0.0) -> int | None:
    """How many batches Keras makes of data in a pass; None where it is not known."""
    if isinstance(x, tf.data.Dataset):
        count = int(x.cardinality())
        return count if count >= 0 else None
    if isinstance(x, keras.utils.PyDataset):
        return x.num_batches
    first = tf.nest.flatten(x)[0]
    if not getattr(first, "shape", None):
        return None
    return -(-int(len(first) * (1 - validation_split)) // (batch_size or 32))


# ---- callbacks ---------------------------------------------------------------------------------


def listed(callbacks: Any) -> list[Any]:
    """The callbacks of `fit` as a list: None, a callback, several, or a CallbackList."""
    callbacks = getattr(callbacks, "callbacks", callbacks) or []
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def callback_list(
    callbacks: Any, verbose: Any, begins_task: bool, logs: str = "metrics"
) -> list[Any]:
    """The callbacks of a `fit`: the user's, then the checks, then the progress bar.

    Args:
        callbacks: The user's.
        verbose: As for `keras.Model.fit`; 0 for no progress bar.
        begins_task: Whether the task begins with this fit.
        logs: What the bar shows, as `Learner.fit` takes it.
    """
    check_name("logs", logs, LOGS)
    short = verbose != 0 and logs == "metrics"
    return [*listed(callbacks), FitChecks(begins_task), *([ShortProgress()] if short else [])]


class FitChecks(keras.callbacks.Callback):
    """Ends a fit with wrong labels, failed learning, another task, or a rate that is not defined.

    It looks when an epoch begins and ends and every `CHECK_EVERY` batches in between. It comes
    after the user's callbacks, so that it sees the rates that they set and the state that they
    load.

    Args:
        begins_task: Whether the task begins with this fit, so that nothing has been learned of it.
    """

    def __init__(self, begins_task: bool = False) -> None:
        super().__init__()
        self._begins_task = begins_task
        self._batches = self._done = self._checked = self._skipped = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Check the task, and note how many steps were skipped before.

        Raises:
            UserError: A callback has loaded the state of another task.
        """
        self.model.check_task()
        self._skipped = int(self.model.skipped.numpy())

    def on_train_end(self, logs: Any = None) -> None:
        """Say how many steps of the fit were skipped.

        Raises:
            UserError: A label is wrong.
            LearningFailedError: All of them were, of a task that begins with this fit, or a weight
                is not finite.
        """
        check_weights(self.model.network)
        skipped = int(self.model.skipped.numpy()) - self._skipped
        # A loss scale begins with steps that overflow.
        if self._begins_task and 0 < self._batches <= skipped and self.model.loss_scale() is None:
            raise LearningFailedError(
                f"no step of this fit had a finite loss and gradient, {skipped} of {skipped}, and "
                "nothing is learned of its task: look for NaN and infinity in the inputs, or take "
                "a lower rate"
            )
        if skipped:
            self.model.warn_once(
                "skipped",
                f"{skipped} step{'s' * (skipped != 1)} of this fit had no finite loss and gradient "
                "and changed nothing: look for NaN and infinity in the inputs, or take a lower "
                "rate; model.skipped counts them",
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Check the task and the rate that the epoch begins with.

        Raises:
            UserError: A callback has loaded the state of another task, or the method is not defined
                at this rate.
        """
        self.model.check_task()
        self._done = self._checked = 0
        self.model.check_rate()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Check all, every so often.

        Raises:
            UserError: A label is wrong, or the method is not defined at the learning rate.
            LearningFailedError: Ten steps in a row were not finite.
        """
        self._batches, self._done = self._batches + batch + 1 - self._done, batch + 1
        if batch + 1 - self._checked >= CHECK_EVERY:
            self._checked = batch + 1
            self._check()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Check all.

        Raises:
            UserError: A label is wrong, or the method is not defined at the learning rate.
            LearningFailedError: Ten steps in a row were not finite.
        """
        self._check()

    def _check(self) -> None:
        self.model.check_goes_on()
        self.model.check_rate()


class FirstPass(keras.callbacks.Callback):
    """Lets the memories of a learner store what comes in the first pass of a fit, and no more.

    Args:
        epochs: The numbers of the epochs of that pass.
    """

    def __init__(self, epochs: range) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Say whether they store, before the first batch of an epoch."""
        for memory in self.model.memories():
            memory.set_stores(epoch in self._epochs)


class ShortProgress(keras.callbacks.ProgbarLogger):
    """Keras's progress bar, of loss and compiled metrics without the method's own logs."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Show the means so far."""
        super().on_train_batch_end(batch, self._shown(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Show the means of the epoch."""
        super().on_epoch_end(epoch, self._shown(logs))

    def _shown(self, logs: Mapping[str, Any] | None) -> dict[str, Any]:
        hidden = getattr(self.model, "log_names", ())[1:]
        shown = (logs or {}).items()
        return {name: value for name, value in shown if name.removeprefix("val_") not in hidden}


# ---- tasks of a stream in place of data --------------------------------------------------------


class EpochOrder(keras.callbacks.Callback):
    """Gives the batches of a task the order of each epoch.

    Args:
        epochs: The batches.
    """

    def __init__(self, epochs: EpochBatches) -> None:
        super().__init__()
        self._epochs = epochs

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epochs.begin(epoch)


class FitArguments(NamedTuple):
    """Arguments of `fit` in place of a task.

    Attributes:
        x: The task's batches.
        callbacks: The user's callbacks, after the one that orders the batches.
        task_id: The task's number.
        validation: Its validation examples, or None.
    """

    x: Any
    callbacks: list[Any]
    task_id: int
    validation: Any


def is_task(x: Any) -> bool:
    """Whether `fit` or `evaluate` received a task of a stream.

    Raises:
        UserError: It received a whole stream.
    """
    if isinstance(x, Stream):
        raise UserError(
            f"received the stream {x.name!r}: expected data of one task; learn all tasks with "
            "nccl_tf.learn(model, stream), or call fit for each task of the stream"
        )
    return isinstance(x, (Task, JointTask))


def fit_arguments(
    task: Task | JointTask,
    beside: dict[str, Any],
    batch_size: int | None,
    epochs: int,
    seed: int,
    callbacks: Any,
) -> FitArguments:
    """The data, callbacks and number of a task.

    Args:
        task: The task.
        beside: Arguments that a task leaves no room for, by name.
        batch_size: Examples in a batch; None for 10.
        epochs: Passes over the task, each in another order.
        seed: Seed of the orders.
        callbacks: As for `keras.Model.fit`.

    Raises:
        UserError: One of `beside` is set, or a number is below 1.
    """
    for name, value in beside.items():
        if value is not None:
            raise UserError(
                f"received a task of a stream and {name}=...: a task has labels, weights and test "
                f"examples itself; leave {name} out, or fit arrays: fit(*task.train, ...)"
            )
    batches = task.epochs(batch_size or BATCH_SIZE, seed, epochs)
    callbacks = [EpochOrder(batches), *listed(callbacks)]
    return FitArguments(batches.batches, callbacks, task.task_id, task.validation)


def test_data(x: Any, batch_size: int | None) -> Any:
    """The batches of a task's test examples, for `evaluate`.

    Raises:
        UserError: The tasks are joined, or the batch size is below 1.
    """
    _check_has_test_examples(x)
    return x.test_batches(batch_size or 500)


def test_inputs(x: Any, task_id: int | None) -> tuple[Any, int]:
    """The inputs of a task's test examples and its number, for `predict`.

    Raises:
        UserError: The tasks are joined, or a number is given beside the task.
    """
    _check_has_test_examples(x)
    if task_id is not None:
        raise UserError(
            f"received task {x.task_id} of a stream and task_id={task_id}: leave task_id out"
        )
    return x.test.inputs, x.task_id


def _check_has_test_examples(x: Any) -> None:
    if isinstance(x, JointTask):
        raise UserError(
            "received a JointTask, which has no test examples: expected one of its tasks, each of "
            "`joint.tasks`"
        )


# ---- data --------------------------------------------------------------------------------------


def as_columns(x: Any, title: str = "inputs") -> Any:
    """Data with tuples for lists, arrays for frames and text as tensors, as Keras takes them.

    Args:
        x: Inputs, labels or weights; None and data sets stay as they are.
        title: What they are, for messages.

    Raises:
        UserError: They are ragged, sparse, objects that are no text, or labels of several outputs.
    """
    if title == "labels":
        check_one_target(x)
    if isinstance(x, dict):
        return {name: as_columns(part, title) for name, part in x.items()}
    if isinstance(x, (list, tuple)) and x and hasattr(x[0], "shape"):
        return tuple(as_columns(part, title) for part in x)
    check_not_ragged(x, title)
    # Keras does not take the nullable and the Arrow dtypes of pandas, nor objects.
    if hasattr(x, "iloc") or (isinstance(x, np.ndarray) and x.dtype.kind in "OU"):
        x = as_array(x, title)
    is_text = isinstance(x, np.ndarray) and x.dtype == object
    return tf.constant(x) if is_text else x


def pair_as_columns(data: Any) -> Any:
    """`(x, y)` or `(x, y, sample_weight)` with each part `as_columns`; a data set stays as it is.

    Raises:
        UserError: As for `as_columns`.
    """
    if not isinstance(data, (tuple, list)):
        return data
    titles = ("inputs", "labels", "sample_weight")
    return tuple(as_columns(part, title) for part, title in zip(data, titles, strict=False))


def agreed_names(names: tuple[str, ...], *data: Any) -> tuple[str, ...]:
    """The names of classes by number, of earlier data and of data sets that tell theirs.

    Args:
        names: Those so far.
        data: As `fit` and `evaluate` take them.

    Raises:
        UserError: Data sets give one number to two classes, as folders of other classes do.
    """
    for told in filter(None, map(told_names, data)):
        for number, (one, other) in enumerate(zip(names, told, strict=False)):
            if one != other:
                raise UserError(
                    f"received a data set whose class {number} is {other!r}, and that of earlier "
                    f"data is {one!r}: expected one number for each class; make a stream, "
                    "nccl_tf.stream_from_datasets([(train, test), ...]), which numbers the classes "
                    "of all its data sets together"
                )
        names = max(names, tuple(told), key=len)
    return names


def tasks_in(x: Any, default: Any) -> Any:
    """The task ids in arrays `{"inputs": inputs, "task": task ids}`, or the default.

    Raises:
        UserError: They are no integers, or not one for each example.
    """
    if not (isinstance(x, dict) and "inputs" in x and x.get("task") is not None):
        return default
    check_task_ids(x["task"])
    return x["task"]


def with_task(learner: "Learner", x: Any, task_id: int | None) -> Any:
    """Data that name the task of every example, where a call names it.

    Args:
        learner: The learner.
        x: As for `evaluate`.
        task_id: The task of all examples; None where the call names none.

    Raises:
        UserError: The call and the data name tasks, nothing does and the learner has heads, or
            there is no head for a task.
    """
    element = getattr(x, "element_spec", x)
    element = (
        element[0] if isinstance(x, tf.data.Dataset) and isinstance(element, tuple) else element
    )
    in_data = isinstance(element, dict) and "inputs" in element and "task" in element
    if in_data and not isinstance(x, tf.data.Dataset):
        for task in np.unique(np.asarray(tasks_in(x, None))):
            if learner.heads is not None and not 0 <= task < len(learner.heads.table):
                raise_no_head(task, len(learner.heads.table))
    if task_id is None:
        is_known = isinstance(x, (tf.data.Dataset, np.ndarray, tf.Tensor, dict, list, tuple))
        if learner.heads is not None and is_known and not in_data:
            raise_no_task()
        return x
    learner.check_head(task_id)
    if in_data:
        raise UserError("received task_id and data with tasks of their own: leave one of them out")

    def named(inputs: Any) -> dict[str, Any]:
        count = tf.shape(tf.nest.flatten(inputs)[0])[0]
        return {"inputs": inputs, "task": tf.fill([count], tf.constant(task_id, tf.int64))}

    if isinstance(x, tf.data.Dataset):
        if isinstance(x.element_spec, tuple):
            return x.map(lambda inputs, *rest: (named(inputs), *rest))
        return x.map(named)
    if isinstance(x, keras.utils.PyDataset):
        return _NamedBatches(x, named)
    first = tf.nest.flatten(x)[0]
    if getattr(first, "shape", None):
        return {"inputs": x, "task": np.full(len(first), task_id, np.int64)}
    # A generator.
    return ((named(batch[0]), *batch[1:]) for batch in x)


class _NamedBatches(keras.utils.PyDataset):
    """The batches of another one, whose inputs name their task."""

    def __init__(self, batches: keras.utils.PyDataset, named: Callable[[Any], Any]):
        super().__init__()
        self._batches, self._named = batches, named

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Any:
        batch = self._batches[index]
        if not isinstance(batch, tuple):
            return self._named(batch)
        return self._named(batch[0]), *batch[1:]


def first_examples(x: Any, y: Any, needed: bool) -> Any:
    """A first batch `(x, y)` of data, eager; None where none can be had without losing it.

    Args:
        x: As for `fit`.
        y: Labels of arrays; None with others.
        needed: Whether a memory waits for shapes.
    """
    if isinstance(x, tf.data.Dataset):
        return next(iter(x), None) if needed else None
    if y is None:
        return x[0] if isinstance(x, keras.utils.PyDataset) else None
    if not all(getattr(part, "shape", None) for part in tf.nest.flatten((x, y))):
        return None
    return tf.nest.map_structure(lambda part: tf.convert_to_tensor(part[:100]), (x, y))


def with_weights(data: Any, sample_weight: Any) -> Any:
    """A first batch of arrays with the weights that `fit` received; other data have theirs."""
    if sample_weight is None:
        return data
    return *data, tf.convert_to_tensor(sample_weight[: len(data[1])])


def refuse_no_data(x: Any) -> None:
    """Refuse None, masked values, ragged rows, and data that are known to be empty.

    Raises:
        UserError: They are, or a data set is of examples and not of batches.
    """
    if isinstance(x, tf.data.Dataset) and any(
        getattr(spec, "shape", None) == () for spec in tf.nest.flatten(x.element_spec)
    ):
        raise UserError(
            f"received a data set of single examples, {x.element_spec}: expected batches; take "
            "dataset.batch(10)"
        )
    if x is None:
        raise UserError("received no data: expected arrays, a dataset or a task of a stream as x")
    for leaf in tf.nest.flatten(x):
        check_unmasked(leaf, "inputs")
        check_not_ragged(leaf, "inputs")
    if isinstance(x, tf.data.Dataset):
        for spec in tf.nest.flatten(x.element_spec):
            check_not_ragged(spec, "inputs")
        if int(x.cardinality()) == 0:
            refuse_empty(x)
    elif any(getattr(leaf, "shape", None) and not leaf.shape[0] for leaf in tf.nest.flatten(x)):
        refuse_empty(x)


def refuse_empty(x: Any) -> None:
    """Raise UserError: data turned out to be empty."""
    raise UserError(
        f"received no examples (an empty {type(x).__name__}), expected at least one: check how "
        "they are filtered or selected"
    )


def check_counts(inputs: Any, labels: Any) -> None:
    """Check that there are as many labels as inputs.

    Raises:
        UserError: There are not.
    """
    counts = {len(column) for column in tf.nest.flatten(inputs)}
    if counts != {len(labels)}:
        raise UserError(
            f"received {len(labels)} labels for {sorted(counts)} inputs: expected a label for each "
            "example"
        )


# ---- hints -------------------------------------------------------------------------------------


def hint_of_tasks(learner: "Learner", x: Any, task_id: int) -> None:
    """Say that each `fit` that names no task learns a new one, at a learner's second such `fit`.

    Args:
        learner: The learner.
        x: As `fit` received it.
        task_id: The task that it learns.
    """
    if task_id == 0 or bool(learner.task_is_open.numpy()):
        return
    spec = x.element_spec if isinstance(x, tf.data.Dataset) else x
    inputs = spec[0] if isinstance(spec, tuple) and isinstance(x, tf.data.Dataset) else spec
    if not (isinstance(inputs, dict) and "task" in inputs):
        learner.warn_once(
            "tasks",
            f"this fit learns task {task_id}: each fit without task_id starts a new task, unless "
            "the fit before had end_task=False",
        )


def hint_of_scale(learner: "Learner", data: Any) -> None:
    """Say that inputs are far smaller or larger than those that a network's first layer rescales.

    Images of values up to 16, or up to 1, under a division by 255 are hardly learned from; those of
    values up to 255 that are not divided, or of 16 bits, make the first steps diverge.

    Args:
        learner: The learner.
        data: A first batch.
    """
    scale = _first_scale(learner.network)
    if scale is None:
        return
    (inputs,) = tf.nest.flatten(split_inputs(data[0])[0])
    values = np.abs(np.asarray(inputs, np.float32))
    largest = float(np.max(values, initial=0))
    if not 0 < largest < np.inf:
        return
    size = "small" if largest * scale < LEAST_SHARE else "large"
    if size == "large" and np.sqrt(np.mean(np.square(values))) * scale <= MOST:
        return
    learner.warn_once(
        "scale",
        f"the inputs reach {largest:g}, which the network's first layer makes "
        f"{largest * scale:.2g}: a network learns little from such {size} values; pass pixels="
        f"stream.pixels to the network, begin it with keras.layers.Rescaling(1 / {largest:g}), or "
        "standardise the columns of a table",
    )


def hint_of_heads(learner: "Learner", heads: Any) -> None:
    """Say that a stream has a head for each task and the learner one for all.

    Args:
        learner: The learner.
        heads: The classes of each head of the stream; None with a single one.
    """
    if heads is not None and learner.heads is None:
        learner.warn_once(
            "heads",
            "the stream has a head for each task and the model one for all, which makes it "
            "class-incremental: build the model with heads=stream.heads, or take a stream with "
            'head="single"',
        )


def hint_of_earlier_steps(learner: "Learner") -> None:
    """Say that a stream is learned by a learner that is trained already."""
    steps = int(learner.optimizer.iterations.numpy())
    if steps:
        learner.warn_once(
            "earlier",
            f"the model has learned {steps} steps before, and continues from its weights and "
            "memory: build network, memory and model again for a run from the start",
        )


def _first_scale(network: keras.Model) -> float | None:
    """The factor of the layer that rescales a network's only input; None where there is none."""
    if len(network.inputs) != 1:
        return None
    first = next((layer for layer in network.layers if not isinstance(layer, _FORMS)), None)
    if not isinstance(first, keras.layers.Rescaling) or np.ndim(first.scale) or first.offset:
        return None
    return abs(float(first.scale))
