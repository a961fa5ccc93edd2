"""CN-DPM: one awake step worked out in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.memories.short_term import ShortTermMemory
from nccl_tf.methods.cn_dpm.method import CNDPM
from nccl_tf.methods.cn_dpm.networks import mlp_experts

RNG = np.random.default_rng(11)
IMAGES, LABELS = RNG.uniform(size=(3, 2, 2, 1)), np.array([0, 2, 1], np.int32)
VAE_SHAPES = ((4, 2), 2, (2, 2), 2, (2, 2), 2, (1, 2), 2, (2, 2), 2, (2, 4), 4)
CLASSIFIER_SHAPES = ((4, 2), 2, (2, 2), 2, (2, 3), 3)
CHILL, RATE = 0.5, 0.03125
RELU = lambda x: np.maximum(x, 0)  # noqa: E731


def parts_of(row, shapes):
    parts = []
    for shape in shapes:
        size = int(np.prod(shape))
        parts.append(row[:size].reshape(shape))
        row = row[size:]
    return parts


def without_noise(row):
    """The autoencoder with variance e^-60, so that its code is its mean."""
    row = row.copy()
    w5, b5 = parts_of(row, VAE_SHAPES)[4:6]
    w5[:, 1], b5[1] = 0, -60
    return row


def density(row):
    w1, b1, w2, b2, w3, b3, w4, b4, w5, b5, w6, b6 = parts_of(row, VAE_SHAPES)
    x = IMAGES.reshape(3, 4)
    code = RELU(RELU(x @ w1 + b1) @ w2 + b2) @ w3 + b3
    mean, log_variance = code[:, 0], code[:, 1]
    decoded = RELU(RELU(mean[:, None] @ w4 + b4) @ w5 + b5) @ w6 + b6
    decoded = 1 / (1 + np.exp(-decoded))
    divergence = (np.exp(log_variance) + mean**2 - 1 - log_variance) / 2
    return -((x - decoded) ** 2).sum(1) / 2 - 2 * np.log(2 * np.pi) - divergence


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def prediction(row):
    w1, b1, w2, b2, w3, b3 = parts_of(row, CLASSIFIER_SHAPES)
    return log_softmax(RELU(RELU(IMAGES.reshape(3, 4) @ w1 + b1) @ w2 + b2) @ w3 + b3)


def differences(f, row, h=1e-6):
    steps = h * np.eye(len(row))
    return np.array([(f(row + step) - f(row - step)) / (2 * h) for step in steps])


def test_an_awake_step_by_hand():
    keras.config.set_dtype_policy("float64")
    try:
        network = mlp_experts((2, 2, 1), 3, widths=(2, 1), latent=1, samples=1, max_experts=2)
    finally:
        keras.config.set_dtype_policy("float32")
    experts = network.layers[-1]
    experts.scale = 1.0
    vae = RNG.normal(size=experts.vae_rows.shape)
    classifier = RNG.normal(size=experts.classifier_rows.shape)
    for row in vae:
        parts = parts_of(row, VAE_SHAPES)
        parts[4][:, 1], parts[5][1] = 0, -60
    experts.vae_rows.assign(vae), experts.classifier_rows.assign(classifier)
    experts.count.assign(1), experts.weights_of_experts.assign([0, 4, 0])

    densities = np.array([density(vae[0]), density(vae[1])])
    predictions = np.array([prediction(classifier[0]), prediction(classifier[1])])
    sharp = log_softmax(predictions / CHILL)[:, range(3), LABELS]
    gap = densities[0] + sharp[0] - densities[1] - sharp[1] - np.log(4)
    log_alpha = -np.sort(gap)[1] - 0.01  # the example with the largest gap is new, no other
    new = gap + log_alpha > 0
    assert new.sum() == 1
    shares = np.where(new, 0.0, 1.0)

    memory = ShortTermMemory(4, (2, 2, 1), example_dtype="float64")
    learner = CNDPM(
        network, memory, log_alpha=log_alpha, classifier_chill=CHILL, vae_learning_rate=RATE
    )
    # Without a graph, which takes long to build.
    learner.compile(keras.optimizers.SGD(2 * RATE), run_eagerly=True)
    logs = learner.fit(tf.data.Dataset.from_tensors((IMAGES, LABELS)), verbose=0).history

    for training, row, loss, rate in (
        (learner.vae_training, vae[1], lambda row: -(shares * density(row)).sum(), RATE),
        (
            learner.classifier_training,
            classifier[1],
            lambda row: -(shares * prediction(row)[range(3), LABELS]).sum(),
            2 * RATE,
        ),
    ):
        gradient = np.clip(differences(loss, row), -0.5, 0.5)
        moment = training.first_moments.numpy()
        np.testing.assert_allclose(moment[1], 0.1 * gradient, rtol=1e-6, atol=1e-10)
        expected = row - rate * gradient / (np.abs(gradient) + 1e-8)
        sure = np.abs(gradient) > 1e-6
        np.testing.assert_allclose(
            training.rows.numpy()[1][sure], expected[sure], rtol=1e-6, atol=1e-9
        )
        assert (moment[[0, 2]] == 0).all()
    np.testing.assert_array_equal(experts.vae_rows.numpy()[[0, 2]], vae[[0, 2]])
    np.testing.assert_allclose(experts.weights_of_experts.numpy(), [0, 6, 0], rtol=1e-12)
    assert memory.stored.numpy() == 1
    np.testing.assert_array_equal(memory.inputs.numpy()[0], IMAGES[new][0])
    assert memory.labels.numpy()[0] == LABELS[new][0]
    assert logs["new_share"][0] == pytest.approx(1 / 3)
    assert logs["log_density"][0] == pytest.approx(densities[1][~new].mean(), rel=1e-6)
