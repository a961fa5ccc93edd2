"""CN-DPM: the properties of the mixture and of its growth."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.memories.short_term import ShortTermMemory
from nccl_tf.methods.cn_dpm.assignment import assign
from nccl_tf.methods.cn_dpm.method import CNDPM
from nccl_tf.methods.cn_dpm.networks import conv_experts, mlp_experts
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_experts, tiny_network

RNG = np.random.default_rng(11)
STEPS = 30  # of sleep, for an expert


def learner_of(memory=12, network=None, steps=4, rate=0.01, run_eagerly=False, **arguments):
    network = network or tiny_experts()
    example_shape = network.input_shape[1:]
    learner = CNDPM(
        network, ShortTermMemory(memory, example_shape), vae_steps=steps, classifier_steps=steps,
        sleep_batch_size=5, **arguments,
    )  # fmt: skip
    learner.compile(keras.optimizers.SGD(rate), metrics=["accuracy"], run_eagerly=run_eagerly)
    return learner


@pytest.fixture(scope="module")
def traced():
    """A learner for which every example is new, whose graphs are made, and its first state."""
    learner = learner_of(log_alpha=1e6, steps=STEPS, rate=0.04, vae_learning_rate=0.02)
    state = [(v, v.numpy()) for v in learner.state_variables.values()]
    learner.fit(tiny_batches(0, count=15), end_task=False, verbose=0)
    return learner, state


@pytest.fixture
def eager_to_grow(traced):
    """The same in its first state: what is traced once serves all tests."""
    learner, state = traced
    for variable, value in state:
        variable.assign(value)
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


def test_every_example_is_counted_once_within_capacity():
    # Its graph would take longer to build than the steps take without.
    learner = learner_of(memory=7, log_alpha=-5.0, steps=2, run_eagerly=True)
    seen, grown = 0, []
    for task in (0, 1):
        for inputs, labels, weights in tiny_batches(task, count=25):
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


def test_sleep_leaves_the_earlier_experts_alone(eager_to_grow):
    learner, experts = eager_to_grow, eager_to_grow.experts
    variables = (
        experts.vae_rows, experts.classifier_rows, learner.vae_training.first_moments,
        learner.classifier_training.steps,
    )  # fmt: skip
    for number in (1, 2):
        before = [variable.numpy() for variable in variables]
        learner.fit(tiny_batches(0, count=15, seed=number), end_task=False, verbose=0)
        assert experts.count.numpy() == number
        assert experts.weights_of_experts.numpy()[number] == 12
        for old, variable in zip(before, variables, strict=True):
            changed = (old != variable.numpy()).reshape(5, -1).any(axis=1)
            np.testing.assert_array_equal(np.flatnonzero(changed), [number])
    assert learner.vae_training.steps.numpy().tolist() == [0, STEPS, STEPS, 0, 0]


def test_before_the_first_expert_every_class_is_as_likely(eager_to_grow):
    for inputs, _, _ in tiny_batches(0).take(1):
        np.testing.assert_allclose(eager_to_grow(inputs), np.log(0.25), rtol=1e-6)


def test_the_prediction_is_the_mixtures(eager_to_grow):
    experts = eager_to_grow.experts
    logs = eager_to_grow.fit(tiny_batches(0, count=30), verbose=0).history
    assert logs["new_share"] == [1] and np.isnan(logs["log_density"]).all()
    assert experts.count.numpy() == 2
    images = experts.scale_images(next(iter(tiny_batches(1)))[0]["inputs"])
    outputs = experts.expert_outputs(images, experts.sample_noise(tf.constant([1, 2], tf.int64), 5))
    weights = experts.weights_of_experts.numpy()[1:3, None, None]
    joint = weights * np.exp(
        outputs.densities.numpy()[1:3, :, None] + outputs.predictions.numpy()[1:3]
    )
    expected = joint.sum(0) / joint.sum((0, 2))[:, None]
    np.testing.assert_allclose(np.exp(experts.log_posterior(outputs)), expected, rtol=1e-4)
    assert not np.allclose(expected[0], expected[1], rtol=1e-3)
    inputs = next(iter(tiny_batches(0)))[0]
    np.testing.assert_array_equal(eager_to_grow(inputs), eager_to_grow(inputs))


@pytest.mark.parametrize("part", ["vae", "classifier"])
def test_later_experts_read_earlier_ones_alone(part, eager_to_grow):
    experts = eager_to_grow.experts
    experts.count.assign(3)
    images = experts.scale_images(RNG.integers(0, 255, (6, *IMAGE_SHAPE)))
    noise = experts.sample_noise(tf.constant([0, 0], tf.int64), 6)

    def said():
        outputs = experts.expert_outputs(images, noise)
        values = outputs.densities if part == "vae" else outputs.predictions
        return values.numpy().reshape(5, -1)

    before, rows = said(), getattr(experts, f"{part}_rows")
    rows.assign(rows.numpy() + 0.05 * (np.arange(5) == 2)[:, None] * RNG.normal(size=rows.shape))
    changed = (before != said()).any(axis=1)
    np.testing.assert_array_equal(changed, [False, False, True, True, False])


def test_a_new_expert_beats_an_untrained_one(eager_to_grow):
    learner = eager_to_grow
    learner.fit(tiny_batches(0, count=15), verbose=0)
    ((inputs, labels, _),) = tiny_batches(0, count=15, batch_size=15)
    images = learner.experts.scale_images(inputs["inputs"][:12])
    outputs = learner.experts.expert_outputs(
        images, learner.experts.sample_noise(tf.constant([0, 0], tf.int64), 12)
    )
    untrained, trained = outputs.densities.numpy()[:2].mean(axis=1)
    assert trained > untrained + 0.5
    np.testing.assert_array_equal(tf.argmax(outputs.predictions[1], axis=1), labels[:12])


def convolutional_experts():
    return conv_experts(
        (16, 20, 3), 4, vae_widths=(4, 2), classifier_widths=(3, 2), latent=2, samples=2,
        max_experts=3,
    )  # fmt: skip


def test_convolutional_experts_read_images():
    experts = learner_of(memory=5, network=convolutional_experts()).experts
    experts.count.assign(2)
    images = experts.scale_images(RNG.integers(0, 255, (6, 16, 20, 3)))
    outputs = experts.expert_outputs(images, experts.sample_noise(tf.constant([0, 0], tf.int64), 6))
    densities, predictions = outputs.densities.numpy()[1:3], outputs.predictions.numpy()[1:3]
    assert np.isfinite(densities).all() and len(np.unique(densities)) == 12
    np.testing.assert_allclose(np.exp(predictions).sum(-1), 1, rtol=1e-5)


@pytest.mark.nightly  # its graph takes long to build
def test_convolutional_experts_grow():
    network = convolutional_experts()
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
    assert learner.execution.traces == 1


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
