"""ER + GMED and MIR + GMED: the edit and a step against NumPy, and their limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner.step import Step
from nccl_tf.memories.edited_reservoir import EditedReservoirMemory
from nccl_tf.methods.gmed import ERGMED, MIRGMED
from nccl_tf.methods.mir import MIR
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, gradient, loss, network, one_step
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

G = gradient(*STREAM)
AHEAD = WEIGHTS - ALPHA * G
STRIDE, REGULARIZATION, DECAY = 0.5, 0.25, 0.75
EDITS = {"edit_stride": STRIDE, "edit_regularization": REGULARIZATION, "edit_decay": DECAY}


def input_gradient(images, labels, weights):
    """Of the mean loss by the images: (softmax(X W) - onehot) W^T / n."""
    logits = images.reshape(len(labels), 4) @ weights
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return (p @ weights.T).reshape(images.shape) / len(labels)


def edit_inputs(images, labels, ages):
    now = input_gradient(images, labels, WEIGHTS)
    direction = input_gradient(images, labels, AHEAD) - (1 + REGULARIZATION) * now
    return images + STRIDE * DECAY ** np.reshape(ages, (-1, 1, 1, 1)) * direction


def step_with(loss) -> Step:
    """An applied step that leaves a loss."""
    return Step([], None, {"loss": tf.constant(loss, tf.float32)})


def rows(images, labels, real=None):
    count = len(labels)
    return Batch(
        tf.constant(images), tf.constant(labels, tf.int64), tf.zeros(count, tf.int64),
        tf.ones(count) if real is None else tf.constant(real, tf.float32),
    )  # fmt: skip


def filled(learner_class=ERGMED, capacity=3, **kwargs):
    """A learner whose memory holds MEMORY, the examples edited 0, 1 and 2 times before."""
    memory = EditedReservoirMemory(capacity, (2, 2, 1), "float64")
    memory.write(rows(*MEMORY))
    memory.ages.assign(np.resize([0, 1, 2], capacity + 1))
    model = learner_class(network(), memory, memory_batch_size=3, **kwargs)
    model.compile(keras.optimizers.SGD(ALPHA))
    return model


def test_a_step_by_hand_edits_writes_back_and_replays():
    model = filled(capacity=8, **EDITS)
    images = edit_inputs(*MEMORY, [0, 1, 2])
    expected = WEIGHTS - ALPHA * (G + gradient(images, MEMORY[1]))
    np.testing.assert_allclose(one_step(model), expected, rtol=1e-10)
    np.testing.assert_allclose(model.memory.inputs.numpy()[:3], images, rtol=1e-10)
    assert model.memory.ages.numpy()[:5].tolist() == [1, 2, 3, 0, 0]
    assert model.memory.labels.numpy()[:5].tolist() == [*MEMORY[1], *STREAM[1]]
    assert int(model.memory.seen.numpy()) == 5


@pytest.mark.parametrize("kind", ["separate", "frozen"])
def test_an_edit_passes_batch_norm_with_the_statistics_of_its_batch(kind):
    """The released code never leaves train mode; here against finite differences of d - b l."""
    norm = keras.layers.BatchNormalization(center=False, scale=False, dtype="float64")
    layers = [keras.Input((2, 2, 1), dtype="float64"), norm, keras.layers.Flatten(dtype="float64")]
    dense = keras.layers.Dense(3, use_bias=False, dtype="float64")
    memory = EditedReservoirMemory(3, (2, 2, 1), "float64")
    model = ERGMED(
        keras.Sequential([*layers, dense]), memory, memory_batch_size=3, batch_norm=kind, **EDITS
    )
    dense.set_weights([WEIGHTS])
    model.compile(keras.optimizers.SGD(ALPHA))
    edited = model.edit_inputs(rows(*STREAM), rows(*MEMORY), tf.zeros(3, tf.int64)).numpy()

    def normed(images):
        if kind == "frozen":
            return images / np.sqrt(1 + norm.epsilon)
        return (images - images.mean()) / np.sqrt(images.var() + norm.epsilon)

    ahead = WEIGHTS - ALPHA * gradient(normed(STREAM[0]), STREAM[1])

    def goal(images):
        now, after = (loss(normed(images), MEMORY[1], w) for w in (WEIGHTS, ahead))
        return after - (1 + REGULARIZATION) * now

    shifts = 1e-6 * np.eye(12).reshape(12, *MEMORY[0].shape)
    slopes = [(goal(MEMORY[0] + s) - goal(MEMORY[0] - s)) / 2e-6 for s in shifts]
    expected = MEMORY[0] + STRIDE * np.reshape(slopes, MEMORY[0].shape)
    np.testing.assert_allclose(edited, expected, rtol=1e-6)


def test_the_gradient_is_of_scaled_pixels():
    """With pixels x 4 and a network that scales them back, the edited pixels are x 4."""
    inputs = keras.Input((2, 2, 1), dtype="float64")
    scaled = keras.layers.Rescaling(0.25, dtype="float64")(inputs)
    model = filled(**EDITS)
    core = model.network
    outputs = core.layers[-1](core.layers[-2](scaled))
    scaling = ERGMED(keras.Model(inputs, outputs), model.memory, **EDITS)
    scaling.compile(keras.optimizers.SGD(ALPHA))
    stream, stored = rows(*STREAM), rows(*MEMORY)
    ages = tf.constant([0, 1, 2])
    expected = 4 * model.edit_inputs(stream, stored, ages)
    fourfold = (batch._replace(inputs=4 * batch.inputs) for batch in (stream, stored))
    np.testing.assert_allclose(scaling.edit_inputs(*fourfold, ages), expected, rtol=1e-10)


@pytest.mark.parametrize("learner_class", [ERGMED, MIRGMED])
def test_an_empty_memory_is_sgd(learner_class):
    past = {"exclude_current_task": learner_class is MIRGMED}
    memory = EditedReservoirMemory(4, (2, 2, 1), "float64", **past)
    model = learner_class(network(), memory, memory_batch_size=2)
    np.testing.assert_allclose(one_step(model), WEIGHTS - ALPHA * G, rtol=1e-12)
    assert not model.memory.ages.numpy()[:4].any()


def weights(learner_class, kind, past, **arguments):
    memory = kind(12, IMAGE_SHAPE, exclude_current_task=past, seed=3)
    model = learner_class(
        tiny_network(input_dtype="float32"), memory, memory_batch_size=4,
        er_weighting="sum_of_means", **arguments,
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(0.25), run_eagerly=True)
    for task in (0, 1):
        model.fit(tiny_batches(task, count=30), verbose=0)
    return model.network.get_weights(), model.memory


def test_mir_gmed_edits_another_batch_than_it_replays():
    """Of eight examples two are edited; what is retrieved of all eight does not depend on it."""
    memory = EditedReservoirMemory(8, (2, 2, 1), "float64", exclude_current_task=True)
    rng = np.random.default_rng(0)
    memory.write(rows(rng.normal(size=(8, 2, 2, 1)), rng.integers(0, 3, 8)))
    memory.close_task(0)
    before = memory.inputs.numpy()
    model = MIRGMED(network(), memory, memory_batch_size=2, candidates=8, edit_stride=5.0)
    stored = memory.rows(tf.range(8), tf.ones(8))
    plain = MIR(network(), memory, memory_batch_size=2, candidates=8)
    plain.compile(keras.optimizers.SGD(ALPHA))
    replay = plain.retrieve(rows(*STREAM), stored)
    memory.ages.assign(np.zeros(9))
    expected = WEIGHTS - ALPHA * (G + gradient(replay.inputs.numpy(), replay.labels.numpy()))
    model.after_step = lambda batch, step: None
    np.testing.assert_allclose(one_step(model), expected, rtol=1e-10)
    changed = (memory.inputs.numpy()[:8] != before[:8]).any(axis=(1, 2, 3))
    assert changed.sum() == 2
    np.testing.assert_array_equal(memory.ages.numpy()[:8], changed)


def test_a_skipped_step_and_padding_edit_nothing():
    model = filled(**EDITS)
    before = model.memory.inputs.numpy()
    slots, images = tf.constant([0, 1, 2]), tf.zeros((3, 2, 2, 1), tf.float64)
    model.write_back(slots, rows(*MEMORY), images, step_with(np.nan))
    model.write_back(slots, rows(*MEMORY, real=[0, 0, 0]), images, step_with(1.0))
    np.testing.assert_array_equal(model.memory.inputs.numpy()[:3], before[:3])
    assert model.memory.ages.numpy()[:3].tolist() == [0, 1, 2]


def test_a_network_of_whole_numbers_is_refused():
    with pytest.raises(UserError, match="float input"):
        ERGMED(tiny_network(), EditedReservoirMemory(3, IMAGE_SHAPE))


def test_a_factor_for_every_channel_is_refused():
    layers = [
        keras.Input((2, 2, 3)),
        keras.layers.Rescaling([1.0, 2.0, 3.0]),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ]
    with pytest.raises(UserError, match="3 factors"):
        ERGMED(keras.Sequential(layers), EditedReservoirMemory(3, (2, 2, 3)))
