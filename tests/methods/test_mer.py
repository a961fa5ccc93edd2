"""MER against walks in NumPy, and its limits."""

from itertools import permutations

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.methods.mer import MER
from tests.methods.hand import (
    ALPHA,
    MEMORY,
    STREAM,
    WEIGHTS,
    FixedMemory,
    gradient,
    network,
    one_step,
    stream,
)

GAMMA, MULTIPLIER = 0.1, 4.0


def learner(images=MEMORY[0], labels=MEMORY[1], real=None, **kwargs):
    memory = FixedMemory(images, labels)
    if real is not None:
        memory.held = memory.held._replace(weights=tf.constant(real, tf.float32))
    return MER(network(), memory, memory_batch_size=len(labels), **kwargs)


def walk(weights, images, labels, order, alpha=ALPHA):
    """SGD on single examples, one after the other."""
    for i in order:
        weights = weights - alpha * gradient(images[i : i + 1], labels[i : i + 1], weights)
    return weights


def is_one_of(weights, candidates):
    return sum(np.allclose(weights, c, rtol=1e-11, atol=1e-13) for c in candidates) == 1


def test_a_step_walks_through_memory_and_then_stream():
    ends = []
    for order in permutations(range(3)):
        weights = walk(WEIGHTS, *MEMORY, order)
        ends.append(weights - MULTIPLIER * ALPHA * gradient(*STREAM, weights))
    after = one_step(learner(meta_rate=GAMMA, stream_multiplier=MULTIPLIER))
    assert is_one_of(after, [WEIGHTS + GAMMA * (end - WEIGHTS) for end in ends])


def test_every_order_occurs():
    model = learner(meta_rate=1.0, stream_multiplier=1.0)
    model.compile(keras.optimizers.SGD(ALPHA))
    expected = {order: walk(WEIGHTS, *MEMORY, order) for order in permutations(range(3))}
    expected = {k: w - ALPHA * gradient(*STREAM, w) for k, w in expected.items()}
    seen = set()
    for _ in range(40):
        model.network.set_weights([WEIGHTS])
        model.fit(stream(), verbose=0, end_task=False)
        after = model.network.get_weights()[0]
        seen |= {k for k, w in expected.items() if np.allclose(after, w, rtol=1e-11, atol=1e-13)}
    assert seen == set(expected)


def test_an_empty_memory_gives_sgd_with_rate_gamma_s_alpha():
    after = one_step(learner(real=[0, 0, 0], meta_rate=GAMMA, stream_multiplier=MULTIPLIER))
    expected = WEIGHTS - GAMMA * MULTIPLIER * ALPHA * gradient(*STREAM)
    np.testing.assert_allclose(after, expected, rtol=1e-12)


def test_padding_is_not_walked_on():
    expected = walk(WEIGHTS, *MEMORY, [1])
    expected = expected - ALPHA * gradient(*STREAM, expected)
    after = one_step(learner(real=[0, 1, 0], meta_rate=1.0, stream_multiplier=1.0))
    np.testing.assert_allclose(after, expected, rtol=1e-12)


def test_only_the_stream_batch_moves_statistics_of_vectors():
    normed = keras.Sequential(
        [
            keras.Input((2, 2, 1)),
            keras.layers.Flatten(),
            keras.layers.BatchNormalization(momentum=0.5, center=False, scale=False),
            keras.layers.Dense(3),
        ]
    )
    model = MER(normed, FixedMemory(*MEMORY), memory_batch_size=3)
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    model.fit(stream(), verbose=0)
    mean = normed.layers[1].moving_mean.numpy()
    np.testing.assert_allclose(mean, STREAM[0].reshape(2, 4).mean(axis=0) / 2, rtol=1e-5)


@pytest.mark.parametrize("kind", ["example", "moving"])
def test_every_pass_in_training_mode_moves_statistics(kind):
    """The memory's two examples are the same, so that their order is known."""
    norm = keras.layers.BatchNormalization(momentum=0.5, center=False, scale=False)
    layers = [keras.Input((2, 2, 1)), norm, keras.layers.Flatten(), keras.layers.Dense(3)]
    images, labels = np.repeat(MEMORY[0][:1], 2, axis=0), np.repeat(MEMORY[1][:1], 2)
    model = MER(
        keras.Sequential(layers), FixedMemory(images, labels), memory_batch_size=2,
        mer_batch_norm=kind,
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    model.fit(stream(), verbose=0)
    mean, variance = 0.0, 1.0
    for passed in [*(images if kind == "example" else []), STREAM[0]]:
        mean, variance = (mean + passed.mean()) / 2, (variance + passed.var()) / 2
    np.testing.assert_allclose(norm.moving_mean.numpy(), [mean], rtol=1e-5)
    np.testing.assert_allclose(norm.moving_variance.numpy(), [variance], rtol=1e-5)


@pytest.mark.parametrize("kind", [None, "example", "moving"])
def test_a_single_example_passes_batch_norm_by_hand(kind):
    """With its own statistics over height and width; or with moving averages, here 0 and 1."""
    norm = keras.layers.BatchNormalization(center=False, scale=False, dtype="float64")
    layers = [keras.Input((2, 2, 1), dtype="float64"), norm, keras.layers.Flatten(dtype="float64")]
    dense = keras.layers.Dense(3, use_bias=False, dtype="float64")
    model = MER(
        keras.Sequential([*layers, dense]), FixedMemory(MEMORY[0][:1], MEMORY[1][:1]),
        memory_batch_size=1, meta_rate=1.0, stream_multiplier=1.0, mer_batch_norm=kind,
    )  # fmt: skip
    dense.set_weights([WEIGHTS])
    model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    model.fit(stream(), verbose=0)

    def normed(images):
        return (images - images.mean()) / np.sqrt(images.var() + norm.epsilon)

    image = MEMORY[0][:1] / np.sqrt(1 + norm.epsilon) if kind == "moving" else normed(MEMORY[0][:1])
    expected = walk(WEIGHTS, image, MEMORY[1][:1], [0])
    expected = expected - ALPHA * gradient(normed(STREAM[0]), STREAM[1], expected)
    np.testing.assert_allclose(dense.kernel.numpy(), expected, rtol=1e-6)


def test_a_single_example_passes_batch_norm_of_vectors_with_moving_averages():
    """Its own statistics would make it 0, so that what it shows would teach nothing."""
    ends = []
    for kind in (None, "moving"):
        for scale in (1.0, 100.0):
            layers = [
                keras.layers.Flatten(),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(3),
            ]
            network = keras.Sequential([keras.Input((2, 2, 1)), *layers])
            network.layers[-1].set_weights([WEIGHTS, np.zeros(3)])
            memory = FixedMemory(scale * MEMORY[0][:1], MEMORY[1][:1])
            model = MER(network, memory, memory_batch_size=1, mer_batch_norm=kind)
            model.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
            model.fit(stream(), verbose=0)
            ends.append(network.get_weights()[-2])
    assert not np.allclose(ends[0], ends[1])
    np.testing.assert_array_equal(ends[:2], ends[2:])
    with pytest.raises(UserError, match=r"'batch_normalization.*mer_batch_norm='moving'"):
        MER(network, memory, mer_batch_norm="example")
