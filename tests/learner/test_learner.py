"""What the base of every method owns: the order of tasks, padding, traces, the optimizer."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


def ring() -> nccl_tf.RingMemory:
    return nccl_tf.RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)


def nccl(**kwargs) -> nccl_tf.NCCL:
    learner = nccl_tf.NCCL(tiny_network(), ring(), **kwargs)
    learner.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"], run_eagerly=True)
    return learner


def test_fit_begins_and_ends_tasks_in_their_order():
    learner = nccl()
    learner.fit(tiny_batches(0, 10), verbose=0)
    learner.fit(tiny_batches(1, 10), verbose=0, end_task=False)
    assert int(learner.progress.task.numpy()) == 1 and bool(learner.progress.task_is_open.numpy())
    learner.fit(tiny_batches(1, 10), verbose=0)
    assert int(learner.progress.tasks_ended.numpy()) == 2
    assert int(learner.progress.task.numpy()) == 1


def padded(count: int, padding: int):
    """One batch, and the same batch with rows of weight 0 behind it."""
    (inputs, labels, weights) = next(iter(tiny_batches(0, count, count)))
    bare = tf.data.Dataset.from_tensors((inputs, labels, weights))
    more = {
        "inputs": tf.concat([inputs["inputs"], inputs["inputs"][:padding]], 0),
        "task": tf.concat([inputs["task"], inputs["task"][:padding]], 0),
    }
    labels = tf.concat([labels, 1 - labels[:padding]], 0)
    weights = tf.concat([weights, tf.zeros(padding)], 0)
    return bare, tf.data.Dataset.from_tensors((more, labels, weights))


def test_padding_is_not_learned_not_stored_and_not_counted():
    one, other = nccl(), nccl()
    bare, with_padding = padded(4, 3)
    for _ in range(2):
        logs = one.fit(bare, verbose=0, end_task=False).history
        padded_logs = other.fit(with_padding, verbose=0, end_task=False).history
    np.testing.assert_allclose(logs["loss"], padded_logs["loss"], rtol=1e-6)
    np.testing.assert_allclose(logs["accuracy"], padded_logs["accuracy"])
    assert one.memory.counts.numpy().tolist()[:-1] == other.memory.counts.numpy().tolist()[:-1]
    for left, right in zip(one.network.weights, other.network.weights, strict=True):
        np.testing.assert_allclose(left.numpy(), right.numpy(), atol=1e-6)
    evaluated = [
        each.evaluate(data, verbose=0) for each, data in ((one, bare), (one, with_padding))
    ]
    np.testing.assert_allclose(*evaluated, rtol=1e-5)


def test_user_arrays_without_task_ids():
    memory = nccl_tf.RingMemory(2, [(0, 1), (0, 1)], IMAGE_SHAPE)
    learner = nccl_tf.NCCL(tiny_network(), memory)
    learner.compile(keras.optimizers.SGD(0.25), run_eagerly=True)
    inputs, labels, _ = next(iter(tiny_batches(0, 33, 33)))
    learner.fit(inputs["inputs"].numpy(), labels.numpy(), batch_size=10, verbose=0)
    learner.fit(inputs["inputs"].numpy(), labels.numpy(), batch_size=10, verbose=0)
    assert int(learner.memory.counts.numpy()[:-1].sum()) == 66
    assert learner.memory.num_readable.numpy() == 8


def test_a_scheduled_rate_is_read_at_every_step():
    learner = nccl()
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay([4], [0.2, 0.05])
    learner.compile(keras.optimizers.SGD(schedule), run_eagerly=True)
    learner.fit(tiny_batches(0, 20), verbose=0)
    logs = learner.fit(tiny_batches(1, 20), verbose=0).history
    assert logs["beta_h"][0] <= 0.2 and logs["alpha_h"][0] < 0.2


def test_another_optimizer_warns_once_and_trains(caplog):
    learner = nccl()
    with caplog.at_level(logging.WARNING, "nccl_tf"):
        learner.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
    assert len(caplog.records) == 1 and "Adam changes the step" in caplog.text
    logs = learner.fit(tiny_batches(0, 10), verbose=0).history
    assert np.isfinite(logs["loss"][0])


def test_alpha_times_smoothness_must_stay_below_one():
    learner = nccl_tf.NCCL(tiny_network(), ring(), smoothness=10.0)
    with pytest.raises(UserError, match="alpha L below 1"):
        learner.compile(keras.optimizers.SGD(0.1))


@pytest.mark.parametrize(
    "arguments",
    [{"memory_batch_size": 0}, {"mask": "x", "heads": TASK_CLASSES}, {"heads": ((0, 9),)}],
)  # fmt: skip
def test_bad_arguments(arguments):
    with pytest.raises(UserError):
        nccl(**arguments)


def test_compiled_functions_do_not_grow_with_the_tasks():
    classes = [(0, 1)] * 4
    learner = nccl_tf.NCCL(tiny_network(), nccl_tf.RingMemory(1, classes, IMAGE_SHAPE))
    learner.compile(keras.optimizers.SGD(0.25))
    counts = []
    for task in range(4):
        learner.fit(tiny_batches(0), task_id=task, verbose=0)
        learner.accuracy(np.zeros((7, *IMAGE_SHAPE), np.uint8), np.zeros(7, int), task)
        evaluations = learner._base.count.experimental_get_tracing_count()
        counts.append((learner.execution.traces, evaluations))
    assert counts[-1] == counts[1]


def residual_network() -> keras.Model:
    return nccl_tf.networks.resnet18_reduced((8, 8, 3), 4, seed=1)


@pytest.mark.nightly  # XLA compiles it for half a minute
def test_xla_agrees_for_a_resnet_on_a_step_with_a_memory():
    # One step: beta_H jumps where Lambda changes its sign, and rounding may change it in the next.
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    labels = rng.integers(0, 2, 12).astype(np.int32)
    states, cosines = [], []
    for jit_compile in (False, True):
        memory = nccl_tf.ReservoirMemory(8, (8, 8, 3), seed=2)
        learner = nccl_tf.NCCL(residual_network(), memory, memory_batch_size=4)
        learner.compile(keras.optimizers.SGD(0.01), jit_compile=jit_compile)
        learner.remember(images[:8], labels[:8], task_id=0)
        before = learner.network.get_weights()
        history = learner.fit(images[8:], labels[8:], batch_size=4, verbose=0, logs="all").history
        states.append(learner.network.get_weights())
        norms = history["memory_gradient_norm"][0] * history["stream_gradient_norm"][0]
        cosines.append(history["lambda"][0] / norms)
    assert abs(cosines[0]) > 1e-3
    np.testing.assert_allclose(*cosines, atol=1e-5)
    assert any((a != b).any() for a, b in zip(before, states[0], strict=True))
    for plain, compiled in zip(*states, strict=True):
        np.testing.assert_allclose(plain, compiled, rtol=1e-5, atol=1e-5)
