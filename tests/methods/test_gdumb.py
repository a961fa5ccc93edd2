"""GDumb: its training against NumPy, the step sizes, and what its network depends on."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import LearningFailedError, UserError
from nccl_tf.memories.balanced import BalancedMemory
from nccl_tf.methods.gdumb import (
    GDumb,
    cutmix,
    shuffle_order,
    warm_restarts,
)
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.methods.hand import ALPHA, MEMORY, WEIGHTS, gradient, network
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, renewed, tiny_batches, tiny_network

MOMENTUM, DECAY = 0.5, 0.0625


@pytest.mark.parametrize("brightness", [1, 40])
def test_three_passes_by_hand(brightness):
    """The second image has a norm of its gradient beyond 10, which is cut."""
    images, labels = brightness * MEMORY[0], MEMORY[1]
    weights, velocity, cut = WEIGHTS, 0, False
    for rate in np.float32([0.1 * ALPHA, ALPHA, ALPHA]).astype(float):
        direction = gradient(images, labels, weights)
        norm = np.linalg.norm(direction)
        cut |= norm > 10
        direction = direction * min(1, 10 / norm)
        velocity = MOMENTUM * velocity - rate * direction
        weights = weights * (1 - rate * DECAY) + velocity
    assert cut == (brightness > 1)

    memory = BalancedMemory(5, [[0, 1, 2]], (2, 2, 1), example_dtype="float64")
    # Four rows for three examples: the row that repeats one must not count.
    learner = GDumb(network(), memory, passes=3, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(ALPHA, momentum=MOMENTUM, weight_decay=DECAY))
    learner.fit(tf.data.Dataset.from_tensors((images, labels.astype(np.int64))), verbose=0)
    np.testing.assert_allclose(learner.network.get_weights()[0], weights, rtol=1e-10)
    assert float(learner.optimizer.learning_rate) == ALPHA


def test_the_step_sizes_restart_as_cosines():
    rates = warm_restarts(0.05, 256)
    assert len(rates) == 256
    assert rates[:2] == [pytest.approx(0.005), 0.05]
    start = 2
    for period in (2, 4, 8, 16, 32, 64, 128):
        for i, rate in enumerate(rates[start : start + period]):
            cosine = (1 + math.cos(math.pi * i / period)) / 2
            assert rate == pytest.approx(0.0005 + (0.05 - 0.0005) * cosine)
        start += period
    assert warm_restarts(0.05, 1) == [pytest.approx(0.005)]


def test_an_order_has_every_stored_example_once():
    orders = {tuple(shuffle_order(tf.constant([5, i], tf.int64), 4, 6).numpy()) for i in range(200)}
    assert all(sorted(order[:4]) == [0, 1, 2, 3] and order[4:] == (4, 5) for order in orders)
    assert len(orders) == 24


def learner_of(heads=None, seed=3, **arguments):
    memory = BalancedMemory(12, TASK_CLASSES, IMAGE_SHAPE, seed=3)
    arguments = {"passes": 40, "memory_batch_size": 4} | arguments
    learner = GDumb(tiny_network(), memory, heads=heads, seed=seed, **arguments)
    learner.compile(keras.optimizers.SGD(0.05, momentum=0.9), metrics=["accuracy"])
    return learner


def fit(learner, *tasks, **arguments):
    for task in tasks:
        learner.fit(tiny_batches(task), task_id=task, verbose=0, **arguments)
    return learner.network.get_weights()


def assert_equal(one, other):
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture(scope="module")
def trained():
    """A learner, and its weights, its accuracies and its state after each task."""
    learner, after = learner_of(), []
    tests = [next(iter(tiny_batches(task, 100, 100, seed=9)))[:2] for task in (0, 1)]
    for task in (0, 1):
        weights = fit(learner, task)
        accuracies = [learner.accuracy(x["inputs"], y, t) for t, (x, y) in enumerate(tests)]
        after.append((weights, accuracies, variables_to_arrays(learner.state_variables)))
    return learner, after


def test_the_network_depends_on_the_memory_alone(trained):
    """And not on the weights before."""
    learner, ((*_, after_first), (second, *_)) = trained
    disturbed = renewed(learner, after_first)
    random = np.random.default_rng(0)
    for variable in (*disturbed.network.variables, *disturbed.optimizer.variables[2:]):
        variable.assign(random.normal(size=variable.shape))
    assert_equal(fit(disturbed, 1), second)


def test_it_trains_from_weights_that_were_loaded_before_the_first_task():
    memory = BalancedMemory(3, [[0, 1, 2]], (2, 2, 1), example_dtype="float32")
    learner = GDumb(network(), memory, passes=1, cutmix=0.0)
    learner.compile(keras.optimizers.SGD(0.0))
    learner.network.set_weights([2 * WEIGHTS])
    learner.fit(*MEMORY, batch_size=3, verbose=0)
    np.testing.assert_array_equal(learner.network.get_weights()[0], 2 * WEIGHTS)


def test_every_task_end_trains_a_network_for_all_tasks_so_far(trained):
    learner, ((_, first, _), (_, second, _)) = trained
    assert first[0] > 0.8 and first[1] == 0
    assert min(second) > 0.8
    counts = np.bincount(learner.memory.labels.numpy()[:12], minlength=4)
    assert counts.max() - counts.min() <= 1


def test_cutmix_mixes_pixels_and_tells_their_share():
    count, shares = 6, []
    images = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None, None], (6, 8, 10, 3))
    batch = Batch(tf.constant(images), tf.range(count), tf.range(count) + 10, tf.ones(count))
    for i in range(60):
        mixed, other, share = cutmix(batch, 0.5, tf.constant([1, i], tf.int64))
        np.testing.assert_array_equal(mixed.labels, batch.labels)
        np.testing.assert_array_equal(other.tasks, other.labels + 10)
        assert sorted(other.labels.numpy()) == list(range(count))
        own = mixed.inputs.numpy() == images
        np.testing.assert_array_equal(
            mixed.inputs, np.where(own, images, other.labels.numpy()[:, None, None, None])
        )
        differs = other.labels.numpy() != batch.labels.numpy()
        np.testing.assert_allclose(own.mean((1, 2, 3))[differs], share, rtol=1e-6)
        shares.append(float(share))
    assert 0.35 < np.mean(np.array(shares) < 1) < 0.55
    assert float(cutmix(batch, 0.0, tf.constant([1, 1], tf.int64))[2]) == 1


def test_a_mixed_step_is_the_mean_of_both_labels_by_hand():
    images, labels = MEMORY
    others, share = labels[[2, 0, 1]], 0.25
    memory = BalancedMemory(3, [[0, 1, 2]], (2, 2, 1), example_dtype="float64")
    learner = GDumb(network(), memory, cutmix=0.5)
    learner.compile(keras.optimizers.SGD(ALPHA))
    one, other = (
        Batch(tf.constant(images), tf.constant(each, tf.int64), tf.zeros(3, tf.int64), tf.ones(3))
        for each in (labels, others)
    )
    step = learner.learn_mixed(one, other, tf.constant(share))
    expected = share * gradient(images, labels) + (1 - share) * gradient(images, others)
    np.testing.assert_allclose(step.gradients[0], expected, rtol=1e-10)


@pytest.mark.eager
def test_training_that_may_mix_images_and_does_not_is_that_without():
    """Neither has weights of classes."""
    trained = []
    for probability in (0.0, 1e-12):
        memory = BalancedMemory(3, [[0, 1, 2]], (2, 2, 1), example_dtype="float32")
        learner = GDumb(network(), memory, passes=3, cutmix=probability)
        learner.compile(keras.optimizers.SGD(ALPHA))
        learner.fit(*MEMORY, batch_size=3, verbose=0)
        trained.append(learner.network.get_weights()[0])
    assert not np.array_equal(trained[0], WEIGHTS)
    np.testing.assert_allclose(trained[1], trained[0], rtol=1e-12)


def test_cutmix_is_for_images_alone():
    table = keras.Sequential(
        [
            keras.Input((8, 2)),
            keras.layers.Conv1D(4, 3),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    memory = BalancedMemory(8, [[0, 1]])
    with pytest.raises(UserError, match=r"cutmix=0\.25 for inputs of the shapes \[\(8, 2\)\]"):
        GDumb(table, memory, cutmix=0.25)
    GDumb(table, memory, passes=1)


def test_a_schedule_is_refused():
    learner = learner_of()
    with pytest.raises(UserError, match="as a number"):
        learner.compile(keras.optimizers.SGD(keras.optimizers.schedules.CosineDecay(0.1, 9)))


def test_steps_on_the_memory_that_are_skipped_are_counted(caplog):
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    learner = GDumb(dense, BalancedMemory(8, [[0, 1]]), passes=3, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1))
    x, y = np.ones((8, 2), np.float32), np.arange(8) % 2
    x[0] = np.nan
    learner.remember(x, y)  # one of two steps in each pass
    assert int(learner.progress.skipped.numpy()) == 3 and "3 steps on the memory" in caplog.text
    assert np.isfinite(dense.get_weights()[0]).all()
    x[:] = np.nan
    learner = GDumb(dense, BalancedMemory(8, [[0, 1]]), passes=5, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(LearningFailedError):
        learner.remember(x, y)
