"""SupSup: a step against NumPy, and what must never change."""

import hashlib

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_network, build_stream
from nccl_tf.methods.supsup.masks import top_mask
from nccl_tf.methods.supsup.method import SupSup
from nccl_tf.methods.supsup.task_inference import surest_task
from nccl_tf.records.options import RunOptions
from tests.methods.hand import ALPHA, STREAM, WEIGHTS, gradient, network, one_step
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


def test_one_step_by_hand():
    learner = SupSup(network(), num_tasks=1, mask_density=5 / 12)
    scores = np.random.default_rng(2).normal(size=(4, 3))
    fixed = np.where(WEIGHTS < 0, -1, 1) * np.sqrt(2 / 4)
    learner.begin_task(0)
    learner.scores[0].assign(scores)
    mask = scores >= np.sort(scores.ravel())[-5]
    assert mask.sum() == 5
    np.testing.assert_allclose(one_step(learner), fixed, rtol=1e-15)
    expected = scores - ALPHA * gradient(*STREAM, fixed * mask) * fixed
    np.testing.assert_allclose(learner.scores[0].numpy(), expected, rtol=1e-10)
    stored = expected >= np.sort(expected.ravel())[-5]
    np.testing.assert_array_equal(learner.masks[0].numpy()[0], stored)
    seen = learner(STREAM[0]).numpy()[:, [0, 2]]
    flat = STREAM[0].reshape(2, 4)
    np.testing.assert_allclose(seen, (flat @ (fixed * stored))[:, [0, 2]], rtol=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(0, 10**6), st.sampled_from([1e-30, 1.0, 1e30]))
def test_a_mask_keeps_the_highest_scores(count, seed, scale):
    scores = scale * np.random.default_rng(seed).normal(size=(6, 10)).astype(np.float32)
    expected = scores >= np.sort(scores.ravel())[-count]
    np.testing.assert_array_equal(top_mask(tf.constant(scores), count), expected)


def with_batch_norm():
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(4, 3, kernel_initializer=keras.initializers.GlorotUniform(seed=1)),
            keras.layers.BatchNormalization(momentum=0.8),
            keras.layers.ReLU(),
            keras.layers.Flatten(),
            keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(seed=2)),
        ]
    )


def learner_of(make=tiny_network, heads=TASK_CLASSES, **arguments):
    learner = SupSup(make(), heads=heads, num_tasks=2, seed=3, **arguments)
    learner.compile(keras.optimizers.SGD(1.0), metrics=["accuracy"])
    return learner


def fit(learner, *tasks, count=60, seed=0, **arguments):
    for task in tasks:
        learner.fit(tiny_batches(task, count, seed=seed), task_id=task, verbose=0, **arguments)


def digest(variables):
    return hashlib.sha256(b"".join(v.numpy().tobytes() for v in variables)).hexdigest()


def test_nothing_is_forgotten_and_no_weight_ever_changes():
    learner = learner_of(with_batch_norm)
    weights = [
        v for v in learner.network.variables if "moving" not in v.name and "seed" not in v.path
    ]
    before = digest(weights)
    inputs, labels, _ = next(iter(tiny_batches(0, 50, 50, seed=9)))
    fit(learner, 0)
    logits = learner(inputs).numpy()
    accuracy = learner.accuracy(inputs["inputs"], labels, 0)
    assert accuracy > 0.7
    masks = [mask.numpy()[0] for mask in (*learner.masks, *learner.statistics)]
    later, *_ = next(iter(tiny_batches(1, 50, 50, seed=9)))
    for _ in range(2):
        fit(learner, 1, end_task=False)
        np.testing.assert_array_equal(learner(inputs), logits)
        assert learner.accuracy(inputs["inputs"], labels, 0) == accuracy
    of_later = learner(later).numpy()
    learner.end_task()
    for same, batch in ((logits, inputs), (of_later, later)):
        np.testing.assert_array_equal(learner(batch), same)
    for old, mask in zip(masks, (*learner.masks, *learner.statistics), strict=True):
        np.testing.assert_array_equal(mask.numpy()[0], old)
    assert digest(weights) == before
    # The scores did learn the second task, and its statistics are others.
    for stored in (v.numpy() for v in (*learner.masks, *learner.statistics)):
        assert (stored[0] != stored[1]).any()


@pytest.mark.eager
def test_a_task_that_comes_again_goes_on_with_its_mask():
    learner = learner_of()
    fit(learner, 0, 1, count=20)
    stored = [mask.numpy()[0] for mask in learner.masks]
    learner.begin_task(0)
    for scores, mask in zip(learner.scores, stored, strict=True):
        np.testing.assert_array_equal(scores.numpy() > 0, mask)
    learner.end_task()
    for masks, mask in zip(learner.masks, stored, strict=True):
        np.testing.assert_array_equal(masks.numpy()[0], mask)


def test_the_task_of_disjoint_confident_masks_is_inferred():
    """Task 0 reads the upper two pixels and task 1 the lower two."""
    inner = network()
    inner.set_weights([np.array([[1, -1, -1], [-1, 1, -1]] * 2)])
    learner = SupSup(inner, num_tasks=2)
    keep = np.zeros((2, 4, 3), bool)
    keep[0, :2], keep[1, 2:] = True, True
    learner.masks[0].assign(keep)
    learner.learned.assign([True, True])
    lit = np.array([[9, -9, 0, 0], [0, 0, -9, 9], [0, 0, 9, 0], [9, 0, 0, 0]], float)
    of_task = [inner.get_weights()[0] * keep[task] for task in (0, 1, 1, 0)]
    expected = [x @ kernel for x, kernel in zip(lit, of_task, strict=True)]
    assert (np.ptp(expected, axis=1) > 10).all()
    np.testing.assert_allclose(learner(lit.reshape(4, 2, 2, 1)), expected, atol=1e-12)


def test_the_inferred_task_is_where_the_entropy_falls_fastest():
    random = np.random.default_rng(4)
    stack, images = random.normal(size=(4, 5, 3)), random.normal(size=(30, 5))
    known = np.array([True, True, False, True])

    def entropy(alphas):
        logits = images @ np.tensordot(alphas, stack, 1)
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return -(p * np.log(p)).sum(1)

    alphas, h = known / 3, 1e-6
    falls = [(entropy(alphas - h * e) - entropy(alphas + h * e)) / (2 * h) for e in np.eye(4)]
    expected = np.where(known[:, None], falls, -np.inf).argmax(0)
    chosen = surest_task(
        lambda values: tf.constant(images) @ values[0],
        [tf.constant(stack)],
        tf.constant(known),
        tf.constant(30),
    )
    np.testing.assert_array_equal(chosen, expected)
    assert set(expected) == {0, 1, 3}


def test_the_task_is_inferred_by_all_outputs_as_the_authors_have_it():
    """`se_oneshot_minimization` of the authors' adaptors.py: the least dH/dalpha, H of all logits.

    Of six outputs only two are of classes; by these alone other tasks would be chosen.
    """
    random = np.random.default_rng(6)
    layer = keras.layers.Dense(6, use_bias=False, dtype="float64")
    learner = SupSup(keras.Sequential([keras.Input((5,), dtype="float64"), layer]), num_tasks=3)
    kernel, masks = layer.kernel.numpy(), random.integers(0, 2, (3, 5, 6)).astype(bool)
    learner.masks[0].assign(masks)
    learner.learned.assign([True] * 3)
    learner.progress.seen_classes.assign([True, True, False, False, False, False])
    images = random.normal(scale=3, size=(40, 5)).astype(np.float32)

    def tasks(outputs):
        logits = images @ (masks.mean(0) * kernel)[:, :outputs]
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        entropy = -(p * np.log(p)).sum(1, keepdims=True)
        by_logit = -p * (np.log(p) + entropy)
        by_alpha = images.astype(float) @ (masks * kernel)[..., :outputs]
        return (by_logit * by_alpha).sum(2).argmin(0)

    assert (tasks(2) != tasks(6)).sum() > 5
    expected = [x @ (masks[k] * kernel)[:, :2] for x, k in zip(images, tasks(6), strict=True)]
    np.testing.assert_allclose(learner(images).numpy()[:, :2], expected, rtol=1e-9)


def test_the_command_builds_superfluous_outputs_for_a_single_head_alone():
    flags = {"method": "supsup", "max_tasks": 2, "hidden": (8,)}
    for more, outputs in (
        ({"dataset": "permuted_digits"}, 110),
        ({"dataset": "split_digits", "head": "single", "superfluous_outputs": 7}, 17),
        ({"dataset": "split_digits", "head": "multi"}, 10),
    ):
        run = resolve(flags | more)
        stream = build_stream(run, RunOptions(), 0)
        assert build_network(run, stream, 0).output_shape == (None, outputs)
    with pytest.raises(UserError, match="a multi-head masks all outputs"):
        resolve(flags | {"dataset": "split_digits", "head": "multi", "superfluous_outputs": 7})


def test_bad_input():
    with pytest.raises(UserError, match="pass num_tasks"):
        SupSup(tiny_network())
    with pytest.raises(UserError, match="--mask_density"):
        learner_of(mask_density=1.0)
    with pytest.raises(UserError, match="--head=single"):
        learner_of(task_id_at_test="inferred")
    with pytest.raises(ValueError, match="raise num_tasks"):
        learner_of(heads=None).begin_task(2)
    layers = [keras.Input(IMAGE_SHAPE), keras.layers.Flatten(), keras.layers.PReLU()]
    with pytest.raises(UserError, match="PReLU, which has weights"):
        SupSup(keras.Sequential([*layers, keras.layers.Dense(2)]), num_tasks=1)
