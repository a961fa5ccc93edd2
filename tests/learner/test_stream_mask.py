"""The classes that the stream loss's softmax runs over, by hand, on every path, and refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.options.option import config_of
from nccl_tf.memories.kinds import MEMORIES
from nccl_tf.methods.registry import METHODS
from tests.learner.test_row_gradients import as_data, batch
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, FixedMemory, network, one_step
from tests.methods.learners import build, fit, make
from tests.tiny import TASK_CLASSES, tiny_network


def masked_gradient(images, labels, classes, weights=WEIGHTS) -> np.ndarray:
    """Gradient of the mean cross-entropy of a softmax over some of the classes."""
    flat, kept = images.reshape(len(labels), 4), np.isin(np.arange(3), classes)
    logits = np.where(kept, flat @ weights, -np.inf)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return flat.T @ p / len(labels)


def test_a_step_over_the_classes_of_the_batch_by_hand():
    learner = nccl_tf.Finetune(network(), stream_mask="present")
    expected = WEIGHTS - ALPHA * masked_gradient(*STREAM, [0, 2])
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("mask", "known", "first", "second"),
    [
        ("present", None, [0, 2], [1]),
        ("seen", [1], [0, 1, 2], [0, 1, 2]),
        ("task", [1], [0, 2], [0, 1, 2]),
    ],
)
def test_two_steps_in_one_call_of_the_graph(mask, known, first, second):
    """The second batch has class 1 alone, and knows which ones the first had."""
    learner = nccl_tf.Finetune(network(), stream_mask=mask, known_classes=known)
    learner.compile(keras.optimizers.SGD(ALPHA))
    images, labels = STREAM
    ones = np.array([1, 1])
    stream = tf.data.Dataset.from_tensor_slices(
        (np.stack([images, images]), np.stack([labels, ones]).astype(np.int32))
    )
    learner.fit(stream, verbose=0)
    after = WEIGHTS - ALPHA * masked_gradient(images, labels, first)
    expected = after - ALPHA * masked_gradient(images, ones, second, after)
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, rtol=1e-12)


def test_the_classes_of_a_task_are_forgotten_with_it(tmp_path):
    learner = nccl_tf.Finetune(network(), stream_mask="task")
    learner.compile(keras.optimizers.SGD(ALPHA))
    images, labels = STREAM

    def learn(labels, end_task=True):
        data = tf.data.Dataset.from_tensors((images, labels))
        learner.fit(data, end_task=end_task, verbose=0)

    learn(labels)
    learn(np.array([1, 1]), end_task=False)
    after = WEIGHTS - ALPHA * masked_gradient(images, labels, [0, 2])  # One class alone is sure.
    np.testing.assert_allclose(learner.network.get_weights()[0], after, rtol=1e-12)
    learner.save(tmp_path / "open.keras")
    learner = nccl_tf.load_model(tmp_path / "open.keras")
    learn(labels)
    expected = after - ALPHA * masked_gradient(images, labels, [0, 1, 2], after)
    np.testing.assert_allclose(learner.network.get_weights()[0], expected, rtol=1e-12)


def test_memory_examples_have_all_classes():
    memory = FixedMemory(*MEMORY)
    learner = nccl_tf.ExperienceReplay(
        network(), memory, memory_batch_size=3, er_weighting="sum_of_means", stream_mask="present"
    )
    f, g = masked_gradient(*MEMORY, [0, 1, 2]), masked_gradient(*STREAM, [0, 2])
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * (f + g), rtol=1e-12)


def test_padding_adds_no_class():
    learner = nccl_tf.Finetune(tiny_network(), stream_mask="present")
    rows = batch(np.random.default_rng(0), (0, 1))
    labels = tf.constant([0, 1, 1, 0, 0, 3])  # the last is padding
    classes = learner._stream_batch(as_data(rows._replace(labels=labels))).extras["stream_classes"]
    assert classes.numpy().tolist() == 6 * [[True, True, False, False]]


SLOW = (
    "bgd",
    "finetune",
    "gem",
    "mir",
    "agem",
    "ewc",
    "mc_sgd",
    "nccl_ring",
    "orthog_subspace",
    "multi_task",
)
REPLAYS_PAST_TASKS = [
    "er_ring",
    *(pytest.param(name, marks=pytest.mark.nightly) for name in SLOW),
]


@pytest.mark.parametrize("name", REPLAYS_PAST_TASKS)
def test_the_first_task_leaves_the_logits_of_other_classes_alone(name):
    memory = METHODS[name].memory
    mask = "present" if memory is None or MEMORIES[memory].reads_open_task else "seen"
    learner = make(name, options={"stream_mask": mask}, run_eagerly=True)
    before = learner.network.layers[-1].get_weights()
    fit(learner, 0, count=10)
    for old, new in zip(before, learner.network.layers[-1].get_weights(), strict=True):
        np.testing.assert_array_equal(old[..., 2:], new[..., 2:])
        assert (old[..., :2] != new[..., :2]).any()
    again = type(learner).from_config(learner.get_config())
    assert config_of(again.options)["stream_mask"] == mask


REFUSED = {
    "icarl": "without a softmax",
    "gdumb": "no step on the stream",
    "supsup": "outputs of all classes",
    "cn_dpm": "experts one by one",
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_without_a_meaning_for_it_say_why(name):
    with pytest.raises(nccl_tf.UserError, match=REFUSED[name]):
        build(name, stream_mask="seen")


def test_what_has_no_meaning_is_refused():
    with pytest.raises(nccl_tf.UserError, match="a head is its mask already"):
        nccl_tf.Finetune(tiny_network(), heads=TASK_CLASSES, stream_mask="present")
    with pytest.raises(nccl_tf.UserError, match="all, present, task, seen"):
        nccl_tf.Finetune(tiny_network(), stream_mask="past")
    for loss in ("mse", "sparse_categorical_crossentropy"):
        with pytest.raises(nccl_tf.UserError, match="masks the softmax over"):
            nccl_tf.Finetune(tiny_network(), stream_mask="present").compile("sgd", loss=loss)
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    nccl_tf.Finetune(tiny_network(), stream_mask="present").compile("sgd", loss=loss)
