"""LPR against a step worked out by hand, its limits, and its preconditioner layer by layer."""

from itertools import pairwise

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from nccl_tf.methods.lpr.layers import preconditioned_layers, seen_by_weights
from nccl_tf.methods.lpr.preconditioner import Preconditioner
from tests.methods.learners import build, fit, make
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network

# A linear network of two inputs and three classes, in float64.
KERNEL, BIAS = np.array([[0.5, -0.25, 0], [-0.5, 0.25, 1]]), np.array([0.1, 0, -0.1])
STREAM = np.array([[1, 0], [0.5, 1]]), np.array([1, 2], np.int32)
MEMORY = np.array([[0, 1], [-1, 0.5]]), np.array([0, 1], np.int64)
KERNEL_AFTER = [
    [0.4937821806, -0.2444554844, 0.0006733038],
    [-0.4906089737, 0.2384226480, 1.0021863257],
]
BIAS_AFTER = [0.0918013735, 0.0132295344, -0.1050309079]
RNG = np.random.default_rng(0)


class Rows(nccl_tf.ReservoirMemory):
    """Always reads the same two examples, which fill the batch with weight 0 where it is larger."""

    def draw(self, count, seed):
        index = tf.range(count, dtype=tf.int64)
        return index % 2, tf.cast(index < 2, tf.float32)

    def rows(self, slots, weights):
        inputs, labels = (tf.gather(part, slots) for part in MEMORY)
        return Batch(inputs, labels, tf.zeros_like(slots), weights)

    def readable_count(self):
        return tf.constant(2, tf.int64)


@pytest.mark.parametrize("examples", [2, 7])
def test_a_step_by_hand(examples):
    """By the small inverse of two rows, and by that of the three inputs; padding does not count."""
    network = keras.Sequential(
        [keras.Input((2,), dtype="float64"), keras.layers.Dense(3, dtype="float64")]
    )
    network.set_weights([KERNEL, BIAS])
    learner = nccl_tf.LPR(
        network, Rows(4, (2,), "float64"), memory_batch_size=2, lpr_omega=4, lpr_examples=examples
    )
    assert (learner.preconditioners[0].rows is None) == (examples > 2)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    learner.fit(tf.data.Dataset.from_tensors(STREAM), verbose=0)
    # The rate is a float32.
    np.testing.assert_allclose(network.get_weights()[0], KERNEL_AFTER, atol=1e-8)
    np.testing.assert_allclose(network.get_weights()[1], BIAS_AFTER, atol=1e-8)


def test_p_is_of_the_whole_memory_read_part_by_part():
    """Of the 200 examples before the last batch, 100 at a time, where 230 have room."""
    examples = None
    network = keras.Sequential(
        [keras.Input((2,), dtype="float64"), keras.layers.Dense(3, dtype="float64")]
    )
    memory = nccl_tf.ReservoirMemory(230, (2,), "float64")
    learner = nccl_tf.LPR(network, memory, lpr_omega=4, lpr_examples=examples, lpr_every=20)
    learner.compile(keras.optimizers.SGD(0.1))
    inputs = RNG.normal(size=(210, 2))
    data = tf.data.Dataset.from_tensor_slices((inputs, np.arange(210, dtype=np.int32) % 3))
    learner.fit(data.batch(10), verbose=0)
    z = np.concatenate([inputs[:200], np.ones((200, 1))], 1)
    expected = np.linalg.inv(np.eye(3) + 4 / 200 * z.T @ z)
    np.testing.assert_allclose(learner.preconditioners[0].inverse, expected, rtol=1e-10)


def test_a_size_that_is_not_known_yet_is_refused():
    with pytest.raises(nccl_tf.UserError, match="set lpr_examples"):
        nccl_tf.LPR(tiny_network(), nccl_tf.RingMemory(5))
    nccl_tf.LPR(tiny_network(), nccl_tf.RingMemory(5), lpr_examples=7)


def network_of(*layers, shape=(6, 5, 3)) -> keras.Model:
    model = keras.Sequential([keras.Input(shape, dtype="float64"), *layers])
    for variable in model.trainable_variables:
        variable.assign(RNG.normal(size=variable.shape))
    return model


def conv(**kwargs):
    return keras.layers.Conv2D(4, **{"kernel_size": 3, "dtype": "float64", **kwargs})


def state(name, shape, dtype):
    return keras.Variable(np.zeros(shape), dtype=dtype, trainable=False, name=name)


def preconditioner(layer, inputs, *, weights=None, omega=3.0, beta=1.0, parts=1):
    weights = np.ones(len(inputs)) if weights is None else weights
    made = Preconditioner(layer, state, len(inputs), omega, beta)
    sums, first = made.nothing(), 0
    for some in np.array_split(np.arange(len(inputs)), parts):
        weights_here = tf.constant(np.take(weights, some), tf.float32)
        sums = made.read(sums, tf.constant(inputs[some]), weights_here, first)
        first += len(some)
    made.refresh(sums)
    return made


LAYERS = {
    "valid": conv(),
    "same": conv(padding="same", strides=2, kernel_size=(3, 2)),
    "dilated": conv(dilation_rate=2, kernel_size=2, use_bias=False),
    "dense": keras.layers.Dense(4, dtype="float64"),
    "without bias": keras.layers.Dense(4, use_bias=False, dtype="float64"),
}


def of_case(name):
    """A layer and inputs for it."""
    shape = (7,) if isinstance(LAYERS[name], keras.layers.Dense) else (6, 5, 3)
    network_of(LAYERS[name], shape=shape)
    return LAYERS[name], RNG.normal(size=(4, *shape))


def as_rows(gradients):
    """Kernel and bias as [entries, units]."""
    kernel, *bias = (np.asarray(g) for g in gradients)
    return np.concatenate([kernel.reshape(-1, kernel.shape[-1]), *(b[None] for b in bias)])


@pytest.mark.parametrize("name", LAYERS)
def test_what_the_weights_see_times_the_weights_is_the_output(name):
    layer, inputs = of_case(name)
    z = seen_by_weights(layer, tf.constant(inputs)).numpy()
    output = np.asarray(layer(inputs))
    np.testing.assert_allclose((z @ as_rows(layer.weights)).reshape(output.shape), output)


@pytest.mark.parametrize(
    ("name", "beta"),
    [("valid", 1.0), ("same", 0.0), ("dilated", 2.0), ("dense", 1.0), ("without bias", 2.0)],
)
def test_a_gradient_of_dense_layers_and_convolutions(name, beta):
    layer, inputs = of_case(name)
    gradients = [tf.constant(RNG.normal(size=w.shape)) for w in layer.weights]
    found = as_rows(preconditioner(layer, inputs, beta=beta)(gradients))
    z = seen_by_weights(layer, tf.constant(inputs)).numpy()
    scale = 3.0 / (z.shape[1] ** beta * len(inputs))
    z, g = z.reshape(-1, z.shape[-1]), as_rows(gradients)
    p = np.eye(z.shape[1]) + scale * z.T @ z
    np.testing.assert_allclose(found, np.linalg.solve(p, g), rtol=1e-8, atol=1e-10)
    assert np.linalg.norm(found) < np.linalg.norm(g) and np.sum(found * g) > 0
    assert np.linalg.norm(z @ found) < np.linalg.norm(z @ g)


@pytest.mark.parametrize("center", [True, False])
def test_batch_normalisation_has_a_matrix_for_each_channel(center):
    layer = keras.layers.BatchNormalization(center=center, dtype="float64")
    network_of(layer)
    layer.moving_mean.assign(RNG.normal(size=3))
    layer.moving_variance.assign(RNG.uniform(0.5, 2, size=3))
    inputs = RNG.normal(size=(4, 6, 5, 3))
    gradients = [tf.constant(RNG.normal(size=3)) for _ in range(1 + center)]
    found = np.stack(preconditioner(layer, inputs, beta=2.0)(gradients), -1)
    mean, variance = layer.moving_mean.numpy(), layer.moving_variance.numpy()
    for channel in range(3):
        z = (inputs[..., channel].ravel() - mean[channel]) / (variance[channel] + layer.epsilon)
        z = np.stack([z, np.ones_like(z)][: 1 + center], -1)
        p = np.eye(1 + center) + 3.0 / (30**2 * 4) * z.T @ z
        g = np.stack(gradients, -1)[channel]
        np.testing.assert_allclose(found[channel], np.linalg.solve(p, g), rtol=1e-10)


@pytest.mark.parametrize("name", ["same", "dense"])
def test_neither_order_copies_padding_nor_parts_of_the_examples_matter(name):
    layer, inputs = of_case(name)
    gradients = [tf.constant(RNG.normal(size=w.shape)) for w in layer.weights]
    expected = as_rows(preconditioner(layer, inputs)(gradients))
    padded = np.concatenate([inputs, inputs[:1]])
    for others, weights in (
        (inputs[::-1], None), (np.concatenate([inputs, inputs]), None), (padded, [1, 1, 1, 1, 0]),
    ):  # fmt: skip
        for parts in (1, 3):
            found = preconditioner(layer, others, weights=weights, parts=parts)(gradients)
            np.testing.assert_allclose(as_rows(found), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_first_step_with_replay_of_a_convolutional_network_is_shorter(jit_compile):
    """In each layer and in graphs; the step before it, without replay, is that of ER."""

    def movement(omega):
        keras.utils.set_random_seed(0)
        network = keras.Sequential([
            keras.Input(IMAGE_SHAPE, dtype="uint8"), keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(3, 2, padding="same"), keras.layers.BatchNormalization(),
            keras.layers.ReLU(), keras.layers.Flatten(), keras.layers.Dense(4),
        ])  # fmt: skip
        memory = nccl_tf.ReservoirMemory(12, IMAGE_SHAPE, seed=1)
        learner = nccl_tf.LPR(network, memory, memory_batch_size=4, lpr_omega=omega, lpr_every=1)
        learner.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile)
        fit(learner, 0, count=5, end_task=False)
        before = [v.numpy() for v in network.trainable_variables]
        fit(learner, 0, count=5)
        after = [v.numpy() for v in network.trainable_variables]
        moves = [(b - a).ravel() for a, b in zip(before, after, strict=True)]
        return before, [np.concatenate(moves[i : i + 2]) for i in (0, 2, 4)]

    (start, plain), (same_start, held) = movement(0.0), movement(5.0)
    for one, other in zip(start, same_start, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for step, shorter in zip(plain, held, strict=True):
        assert 0 < np.linalg.norm(shorter) < 0.99 * np.linalg.norm(step)
        assert step @ shorter > 0


def test_it_is_taken_again_every_so_many_steps():
    learner = make("lpr", options={"lpr_every": 3}, steps_per_execution=1)
    inverse = learner.preconditioners[0].inverse
    seen = [inverse.numpy()]
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(inverse.numpy())
    )
    learner.fit(tiny_batches(0, 50), verbose=0, callbacks=[note])
    changed = [(now != before).any() for before, now in pairwise(seen)]
    # Steps 0, 3, 6 and 9 are due, but before step 0 the memory is empty.
    assert np.flatnonzero(changed).tolist() == [3, 6, 9]


def test_a_frozen_layer_is_left_alone():
    learner = build("lpr")
    learner.network.layers[-2].trainable = False
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    before = learner.network.get_weights()
    fit(learner, 0, count=20)
    frozen = [(a == b).all() for a, b in zip(before, learner.network.get_weights(), strict=True)]
    assert frozen == [True, True, False, False]


def test_networks_whose_layers_it_cannot_take_one_by_one_are_refused():
    def refused(outputs, message):
        with pytest.raises(nccl_tf.UserError, match=message):
            preconditioned_layers(keras.Model(inputs, outputs))

    inputs, dense = keras.Input(IMAGE_SHAPE), keras.layers.Dense(4)
    flat = keras.layers.Flatten()(inputs)
    twice = keras.layers.Dense(16)
    refused(twice(twice(flat)), "2 times, and not once")
    refused(tiny_network(input_dtype="float32")(inputs), "inside, with layers of its own")
    refused(dense(inputs), "more than one vector")
    grouped = keras.layers.Conv2D(4, 1, groups=2)(keras.layers.Conv2D(4, 1)(inputs))
    refused(grouped, "in groups of channels")
    refused(keras.layers.Conv2D(4, 1, data_format="channels_first")(inputs), "channels first")

    class Own(keras.Model):
        pass

    with pytest.raises(nccl_tf.UserError, match="no functional or Sequential model"):
        preconditioned_layers(Own(name="own"))
