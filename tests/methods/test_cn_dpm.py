"""CN-DPM: one awake step worked out in NumPy, and the properties of the mixture."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.memories.short_term import ShortTermMemory
from nccl_tf.methods.cn_dpm import CNDPM
from nccl_tf.methods.expert_assignment import assign
from nccl_tf.networks import conv_experts, mlp_experts
from tests.conftest import IMAGE_SHAPE, tiny_batches, tiny_experts, tiny_network

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

    memory = ShortTermMemory(4, (2, 2, 1), image_dtype="float64")
    learner = CNDPM(
        network, memory, log_alpha=log_alpha, classifier_chill=CHILL, vae_learning_rate=RATE
    )
    learner.compile(keras.optimizers.SGD(2 * RATE))
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
    np.testing.assert_array_equal(memory.images.numpy()[0], IMAGES[new][0])
    assert memory.labels.numpy()[0] == LABELS[new][0]
    assert logs["new_share"][0] == pytest.approx(1 / 3)
    assert logs["log_density"][0] == pytest.approx(densities[1][~new].mean(), rel=1e-6)


def learner_of(memory=12, network=None, steps=4, **arguments):
    network = network or tiny_experts()
    image_shape = network.input_shape[1:]
    learner = CNDPM(
        network, ShortTermMemory(memory, image_shape), vae_steps=steps, classifier_steps=steps,
        sleep_batch_size=5, **arguments,
    )  # fmt: skip
    learner.compile(keras.optimizers.SGD(0.01), metrics=["accuracy"])
    return learner


def test_responsibilities_sum_to_one_over_experts_that_take_part():
    joint = RNG.normal(scale=300, size=(5, 40)) - 2000
    joint[3:] = -np.inf
    assignment = assign(tf.constant(joint))
    np.testing.assert_allclose(assignment.responsibilities.numpy().sum(0), 1)
    assert (assignment.responsibilities.numpy()[3:] == 0).all()
    new = joint.argmax(0) == 0
    np.testing.assert_array_equal(assignment.is_new, new)
    assert 0 < new.sum() < 40
    np.testing.assert_allclose(assignment.shares.numpy().sum(0), np.where(new, 0, 1))
    assert (assignment.shares.numpy()[0] == 0).all()
    expected = np.exp(joint[1:3] - joint[1:3].max(0))
    expected /= expected.sum(0)
    np.testing.assert_allclose(assignment.shares.numpy()[1:3][:, ~new], expected[:, ~new])


def test_the_memory_never_exceeds_its_capacity_and_every_example_is_counted_once():
    learner = learner_of(memory=7, log_alpha=-5.0, network=tiny_experts())
    seen, grown = 0, []
    for task in (0, 1):
        for inputs, labels, weights in tiny_batches(task, count=40):
            weights = tf.constant([1.0, 1, 1, 1, 0])
            learner.fit(
                tf.data.Dataset.from_tensors((inputs, labels, weights)), task_id=task,
                end_task=False, verbose=0,
            )  # fmt: skip
            seen += 4
            stored = int(learner.memory.stored.numpy())
            assert stored < 7
            assert learner.experts.weights_of_experts.numpy().sum() + stored == pytest.approx(seen)
            grown.append(int(learner.experts.count.numpy()))
        learner.end_task()
    assert grown == sorted(grown) and 1 < grown[-1] <= 4
    assert learner.traces == 1


def test_sleep_leaves_the_earlier_experts_alone():
    learner = learner_of(memory=10, log_alpha=1e6)
    experts = learner.experts
    variables = (
        experts.vae_rows, experts.classifier_rows, learner.vae_training.first_moments,
        learner.classifier_training.steps,
    )  # fmt: skip
    for number in (1, 2, 3):
        before = [variable.numpy() for variable in variables]
        learner.fit(tiny_batches(0, count=10, seed=number), end_task=False, verbose=0)
        assert experts.count.numpy() == number
        assert experts.weights_of_experts.numpy()[number] == 10
        for old, variable in zip(before, variables, strict=True):
            changed = (old != variable.numpy()).reshape(5, -1).any(axis=1)
            np.testing.assert_array_equal(np.flatnonzero(changed), [number])
    assert learner.vae_training.steps.numpy().tolist() == [0, 4, 4, 4, 0]


def test_what_comes_when_the_memory_is_full_waits_for_the_next_expert():
    learner = learner_of(memory=12, log_alpha=1e6)
    (batches,) = [list(tiny_batches(0, count=15))]
    learner.fit(tiny_batches(0, count=15), verbose=0)
    assert learner.experts.count.numpy() == 1
    assert learner.memory.stored.numpy() == 3
    left = batches[2][0]["image"].numpy()[2:]
    np.testing.assert_array_equal(learner.memory.images.numpy()[:3], left)


def test_with_all_experts_no_example_is_new():
    learner = learner_of(memory=5, log_alpha=1e6)
    learner.fit(tiny_batches(0, count=60), verbose=0)
    assert learner.experts.count.numpy() == 4
    assert learner.memory.stored.numpy() == 0
    assert learner.experts.weights_of_experts.numpy().sum() == pytest.approx(60)


def test_before_the_first_expert_every_class_is_as_likely():
    learner = learner_of()
    for inputs, _, _ in tiny_batches(0).take(1):
        np.testing.assert_allclose(learner(inputs), np.log(0.25), rtol=1e-6)


def test_the_prediction_is_the_mixtures():
    experts = (learner := learner_of(log_alpha=1e6)).experts
    learner.fit(tiny_batches(0, count=40), verbose=0)
    assert experts.count.numpy() == 3
    images = experts.scaled(next(iter(tiny_batches(1)))[0]["image"])
    view = experts.view(images, experts.noise(tf.constant([1, 2], tf.int64), 5))
    weights = experts.weights_of_experts.numpy()[1:4, None, None]
    joint = weights * np.exp(view.densities.numpy()[1:4, :, None] + view.predictions.numpy()[1:4])
    expected = joint.sum(0) / joint.sum((0, 2))[:, None]
    np.testing.assert_allclose(np.exp(experts.posterior(view)), expected, rtol=1e-4)
    assert not np.allclose(expected[0], expected[1], rtol=1e-3)


def test_evaluating_again_gives_the_same():
    learner = learner_of(log_alpha=1e6)
    learner.fit(tiny_batches(0, count=20), verbose=0)
    inputs = next(iter(tiny_batches(0)))[0]
    np.testing.assert_array_equal(learner(inputs), learner(inputs))
    one = {name: value[:1] for name, value in inputs.items()}
    np.testing.assert_allclose(learner(inputs)[:1], learner(one), rtol=1e-5)


@pytest.mark.parametrize("part", ["vae", "classifier"])
def test_later_experts_read_earlier_ones_and_not_the_other_way_round(part):
    experts = learner_of(log_alpha=1e6).experts
    experts.count.assign(3)
    images = experts.scaled(RNG.integers(0, 255, (6, *IMAGE_SHAPE)))
    noise = experts.noise(tf.constant([0, 0], tf.int64), 6)

    def said():
        view = experts.view(images, noise)
        values = view.densities if part == "vae" else view.predictions
        return values.numpy().reshape(5, -1)

    before, rows = said(), getattr(experts, f"{part}_rows")
    rows.assign(rows.numpy() + 0.05 * (np.arange(5) == 2)[:, None] * RNG.normal(size=rows.shape))
    changed = (before != said()).any(axis=1)
    np.testing.assert_array_equal(changed, [False, False, True, True, False])


def test_a_new_expert_is_better_on_its_examples_than_an_untrained_one():
    learner = learner_of(memory=20, steps=300, vae_learning_rate=0.01, log_alpha=1e6)
    learner.fit(tiny_batches(0, count=20), verbose=0)
    inputs, labels, _ = next(iter(tiny_batches(0)))
    images = learner.experts.scaled(inputs["image"])
    view = learner.experts.view(images, learner.experts.noise(tf.constant([0, 0], tf.int64), 5))
    assert (view.densities[1] > view.densities[0]).numpy().all()
    assert (tf.argmax(view.predictions[1], axis=1, output_type=tf.int32) == labels).numpy().all()


def test_convolutional_experts_grow():
    network = conv_experts(
        (16, 20, 3), 4, vae_widths=(4, 2), classifier_widths=(3, 2), latent=2, samples=2,
        max_experts=3,
    )  # fmt: skip
    learner = learner_of(memory=5, network=network, log_alpha=1e6, steps=2)
    images, labels = RNG.integers(0, 255, (15, 16, 20, 3), np.uint8), np.arange(15) % 4
    before = learner.experts.vae_rows.numpy()
    learner.fit(images, labels, batch_size=5, shuffle=False, verbose=0)
    assert learner.experts.count.numpy() == 3
    after = learner.experts.vae_rows.numpy()
    assert (before[0] == after[0]).all() and (before[1:] != after[1:]).any(axis=1).all()
    learner.fit(images, labels, batch_size=5, shuffle=False, verbose=0)
    assert np.isfinite(learner.predict(images, verbose=0)).all()
    trained = learner.experts.classifier_rows.numpy()
    assert np.isfinite(trained).all()
    assert learner.traces == 1


def test_bad_input():
    memory = ShortTermMemory(4, IMAGE_SHAPE)
    with pytest.raises(UserError, match="mlp_experts"):
        CNDPM(tiny_network(), memory)
    with pytest.raises(UserError, match="--classifier_chill"):
        CNDPM(tiny_experts(), memory, classifier_chill=0.0)
    with pytest.raises(UserError, match="must hold a batch"):
        learner_of(memory=4).fit(tiny_batches(0), verbose=0)
    with pytest.raises(UserError, match="16 or more"):
        conv_experts((8, 8, 1), 10)
    with pytest.raises(UserError, match="1 or more"):
        mlp_experts((8, 8, 1), 10, max_experts=0)
