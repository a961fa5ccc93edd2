"""How steps run, without a learner: the steps of a call, chunks and single steps."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf.learner import execution as module
from nccl_tf.learner.execution import DENSE_STEPS, Execution, StepFunctions, steps_in_a_call
from nccl_tf.streams.batches import IndexedBatches


class Frequent(keras.callbacks.Callback):
    """One of the library's, by its module, which acts every so many batches."""

    __module__ = "nccl_tf.callbacks"

    def __init__(self, frequency):
        super().__init__()
        self.save_freq = frequency


@given(st.integers(1, DENSE_STEPS), st.integers(1, 10**4), st.integers(1, 99))
def test_calls_end_at_epochs_and_callbacks(most, batches, frequency):
    steps = steps_in_a_call(most, 1, batches, batches, [Frequent(frequency)], False)
    assert 1 <= steps <= most and batches % steps == 0 and frequency % steps == 0
    steps = steps_in_a_call(most, 1, batches, None, [], False)
    divisors = [n for n in range(10, most + 1) if batches % n == 0]
    assert steps == (batches if batches <= most else max(divisors, default=most))


def test_one_step_where_nothing_tells_how_many():
    own = OwnCallback()
    assert steps_in_a_call(200, 1, None, None, [], False) == 1
    assert steps_in_a_call(200, 1, 600, None, [own], False) == 1
    assert steps_in_a_call(8, 1, 600, None, [own], True) == 8


def test_a_huge_number_is_met_at_once():
    """Without a look at every number below it."""
    for most in (10**12, 10**12 + 1):
        assert steps_in_a_call(most, 1, 600, None, [], True) == most
        assert steps_in_a_call(most, 1, None, 10**12, [], True) == 10**12
        assert steps_in_a_call(most, 1, 600, 48, [Frequent(36)], True) == 12


class OwnCallback(keras.callbacks.Callback):
    """One of a user's own, which sees batches."""

    def on_train_batch_end(self, batch, logs=None):
        """Nothing."""


def counting(adds_logs=False):
    """Steps that count themselves and add up what they get, for `Execution.run`."""
    count, total = tf.Variable(0, dtype=tf.int64), tf.Variable(0.0)

    def step(data):
        count.assign_add(1)
        total.assign_add(tf.reduce_sum(data))
        return {"last": tf.reduce_max(data)} if adds_logs else {}

    def loop(step):
        return tf.function(lambda iterator: step(next(iterator)), autograph=False)

    return StepFunctions(
        step, lambda: {"count": count.value(), "total": total.value()}, loop, adds_logs
    )


def batches(sizes):
    """Batches [n] of such sizes, with the numbers from 1."""
    rows = np.split(np.arange(1.0, sum(sizes) + 1, dtype=np.float32), np.cumsum(sizes)[:-1])
    spec = tf.TensorSpec([None], tf.float32)
    return iter(tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=spec))


def run_all(execution, steps, iterator):
    logs = []
    while True:
        try:
            logs.append(execution.run(steps, iterator))
        except (StopIteration, tf.errors.OutOfRangeError):
            return [{name: float(value) for name, value in each.items()} for each in logs]


@pytest.mark.parametrize("sizes", [[4] * 6, [4, 4, 2, 4, 4, 4, 4], [4, 2, 4, 2], [3, 4, 4, 4, 1]])
@pytest.mark.parametrize("adds_logs", [False, True])
def test_chunks_take_every_batch_once(sizes, adds_logs):
    """Of other sizes in between, and of a rest."""
    execution, steps = Execution(), counting(adds_logs)
    execution.begin(3, 200, jit_compile=True)
    execution.choose(None, None)
    execution.set_per_call(None, None, [])
    logs = run_all(execution, steps, batches(sizes))
    whole = sum(sizes)
    assert (logs[-1]["count"], logs[-1]["total"]) == (len(sizes), whole * (whole + 1) / 2)
    assert [each["count"] for each in logs] == [*range(3, len(sizes), 3), len(sizes)]
    assert ("last" in logs[0]) == adds_logs and logs[-1].get("last", whole) == whole


def test_a_single_step_has_the_results_of_metrics():
    execution, steps = Execution(), counting()
    logs = run_all(execution, steps, batches([2, 2]))
    assert logs == [{"count": 1, "total": 3}, {"count": 2, "total": 10}]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("adds_logs", [False, True])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_examples_in_memory_are_taken_by_index(padded, adds_logs, jit_compile):
    """The numbers 1 to 11 in batches of 4: of 3 with padding, or of one that is smaller."""
    order = np.resize(np.arange(11)[::-1], 12) if padded else np.arange(11)[::-1]
    weights = ((np.arange(12) < 11).astype(np.float32),) if padded else ()
    columns = (np.arange(1.0, 12.0, dtype=np.float32),)
    batches = IndexedBatches(columns, 4, len(order), lambda _: (order, *weights))
    counted = counting(adds_logs)

    def step(batch):
        return counted.step(batch[0] * batch[1] if padded else batch[0])

    execution = Execution()
    execution.begin(2, 200, jit_compile=jit_compile)
    execution.choose(None, None)
    execution.set_per_call(None, None, [])
    logs = run_all(execution, counted._replace(step=step), iter(batches))
    assert [each["count"] for each in logs] == [2, 3] and logs[-1]["total"] == 66
    assert [each.get("last") for each in logs] == ([7, 3] if adds_logs else [None, None])


def test_examples_in_memory_of_any_number_have_one_graph():
    """So that tasks of all lengths are traced once; the rest of another size is one more form."""
    execution, traced = Execution(), []
    steps = counting()
    noted = steps._replace(step=lambda batch: traced.append(batch[0].shape) or steps.step(batch[0]))
    for count in (4, 8, 6, 10, 12):
        order = np.arange(count)
        batches = IndexedBatches((np.ones(count, np.float32),), 4, count, lambda _, o=order: (o,))
        run_all(execution, noted, iter(batches))
    assert traced == [(4,), (None,)]


def test_what_is_known_has_a_graph_of_its_own():
    execution, steps, seen = Execution(), counting(), []
    noted = steps._replace(step=lambda data: seen.append(execution.known) or steps.step(data))
    for known in (True, False, True):
        execution.known = execution.known._replace(labels_checked=known)
        run_all(execution, noted, batches([2, 2]))
    assert [each.labels_checked for each in seen] == [True, False]


def test_a_program_that_fails_is_not_the_end_of_the_data(monkeypatch):
    """Where TensorFlow's error is the one that ends data."""
    execution, steps = Execution(), counting()
    execution.begin(2, 200, jit_compile=True)
    execution.choose(None, None)
    execution.set_per_call(None, None, [])

    def fail(batches):
        raise tf.errors.OutOfRangeError(None, None, "the file is cut")

    program = module._Program(plain=fail, compiled=fail)
    monkeypatch.setattr(module, "_program", lambda steps, spec: program)
    with pytest.raises(RuntimeError, match="the file is cut"):
        execution.run(steps, batches([4, 4]))
