"""Dark replay as a part of the memory loss: by hand, on both gradient paths, kept and refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.learner.test_row_gradients import METHODS as TWO_PATHS
from tests.learner.test_row_gradients import batch, is_by_rows
from tests.learner.test_row_gradients import network as dense_network
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
)  # fmt: skip
from tests.methods.learners import build, fit, values
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

pytestmark = pytest.mark.eager

DARK, LABELS = 0.25, 0.75  # exact in float32
FLAT = MEMORY[0].reshape(3, 4)
KEPT = np.random.default_rng(0).normal(size=(3, 3))
G = gradient(*STREAM)
COLUMN = {"logits": ((4,), "float32")}


def replay(learner_class, kept=KEPT, dark=DARK, replay_labels=LABELS, **kwargs):
    memory = FixedMemory(*MEMORY)
    memory.held = memory.held._replace(extras={"logits": tf.constant(kept)})
    memory.extras = {"logits": ((3,), "float64")}
    return learner_class(
        network(), memory, memory_batch_size=3, dark=dark, replay_labels=replay_labels, **kwargs
    )


def memory_gradient() -> np.ndarray:
    """b times that of the labels' loss, and a d/dW mean (XW - z)^2 over examples and logits."""
    dark = 2 * FLAT.T @ (FLAT @ WEIGHTS - KEPT) / KEPT.size
    return LABELS * gradient(*MEMORY) + DARK * dark


def test_a_step_of_er_by_hand():
    learner = replay(nccl_tf.ExperienceReplay, er_weighting="sum_of_means")
    expected = WEIGHTS - ALPHA * (G + memory_gradient())
    np.testing.assert_allclose(one_step(learner), expected, rtol=1e-12)


def test_f_of_nccl_is_the_gradient_of_that_loss():
    learner = replay(nccl_tf.NCCL)
    learner.compile(keras.optimizers.SGD(ALPHA), run_eagerly=True)
    logs = learner.fit(stream(), verbose=0).history
    f = memory_gradient()
    np.testing.assert_allclose(logs["memory_gradient_norm"][0], np.linalg.norm(f), rtol=1e-6)
    np.testing.assert_allclose(logs["lambda"][0], np.sum(f * G), rtol=1e-6)


@pytest.mark.parametrize(
    ("learner_class", "arguments"),
    [
        (nccl_tf.AGEM, {"gradients": "two_tapes"}),
        (nccl_tf.MER, {"meta_rate": 1.0, "stream_multiplier": 1.0}),
    ],
)
def test_logits_that_stay_and_no_labels_leave_the_stream_s_step(learner_class, arguments):
    learner = replay(learner_class, FLAT @ WEIGHTS, 1.0, 0.0, **arguments)
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * G, rtol=1e-6)


def filled(learner_class, dtype: str, **kwargs):
    memory = nccl_tf.ReservoirMemory(4, IMAGE_SHAPE, extras=COLUMN)
    learner = learner_class(
        dense_network(dtype), memory, heads=TASK_CLASSES, dark=0.7, replay_labels=0.4, **kwargs
    )
    learner.compile(keras.optimizers.SGD(0.1))
    return learner


def with_logits(random, tasks):
    logits = tf.constant(random.normal(size=(6, 4)))
    return batch(random, tasks)._replace(extras={"logits": logits})


@pytest.mark.parametrize(("method", "arguments"), TWO_PATHS[:1])
def test_both_gradient_paths_agree_in_float64(method, arguments):
    random = np.random.default_rng(5)
    pairs = [(batch(random, (1,)), with_logits(random, (0,))) for _ in range(6)]
    learners = [filled(method, "float64", gradients=g, **arguments) for g in ("auto", "two_tapes")]
    assert list(map(is_by_rows, learners)) == [True, False]
    for each in learners:

        def one_step(stream, replay, each=each):
            each.apply(each.replay(stream, replay).gradients)

        for pair in pairs:
            one_step(*pair)
    for left, right in zip(*(one.get_weights() for one in learners), strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-10)


def test_logits_of_other_heads_are_not_compared():
    learner = filled(nccl_tf.ExperienceReplay, "float64")
    rows = with_logits(np.random.default_rng(1), (0,))
    logits = learner.forward(rows, training=False)
    kept = rows.extras["logits"].numpy()
    found = learner.memory_losses(logits, rows)
    here = np.mean((logits.raw.numpy() - kept)[:, :2] ** 2, axis=1)
    expected = 0.4 * learner.example_loss.of(logits.masked, rows) + 0.7 * here
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_memory_keeps_raw_logits_from_before_the_update():
    """In a ring too, whose steps are then taken one by one; without shapes it gets the column."""
    memory = nccl_tf.RingMemory(5)
    learner = nccl_tf.AGEM(tiny_network(), memory, heads=TASK_CLASSES, dark=1.0)
    learner.compile(keras.optimizers.SGD(0.5))
    (inputs, *_), *_ = tiny_batches(0)
    before = learner.network(inputs["inputs"]).numpy()
    learner.fit(tiny_batches(0).take(1), verbose=0)
    stored = memory.read_task(0)
    real = stored.weights.numpy() > 0
    kept, images = stored.extras["logits"].numpy()[real], stored.inputs.numpy()[real]
    rows = [np.argmin(np.abs(before - one).sum(axis=1)) for one in kept]
    np.testing.assert_allclose(kept, before[rows], rtol=1e-6)
    np.testing.assert_array_equal(images, inputs["inputs"].numpy()[rows])


@pytest.mark.nightly
def test_xla_and_a_grown_head(tmp_path):
    both = []
    for jit_compile in (False, True):
        memory = nccl_tf.ReservoirMemory(9, IMAGE_SHAPE, extras=COLUMN)
        learner = nccl_tf.ExperienceReplay(tiny_network(), memory, dark=0.5, seed=3)
        learner.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile)
        fit(learner, 0, count=40)
        both.append(values(learner))
    for left, right in zip(*both, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-6, atol=1e-5)
    kept = learner.memory.columns["logits"].numpy()
    learner.add_classes(2)
    grown = learner.memory.columns["logits"].numpy()
    np.testing.assert_array_equal(grown[:, :4], kept)
    assert grown.shape[1] == 6 and not grown[:, 4:].any()


REFUSED = {
    "mc_sgd": "merge weights",
    "icarl": "distils",
    "gss_greedy": "gradients of the labels' loss",
    "derpp": "der_alpha",
    "er_gmed": "edits its examples",
    "mir_gmed": "edits its examples",
}


@pytest.mark.parametrize("name", REFUSED)
def test_methods_without_a_meaning_for_it_say_why(name):
    for arguments in ({"dark": 1.0}, {"replay_labels": 0.5}):
        with pytest.raises(nccl_tf.UserError, match=REFUSED[name]):
            build(name, **arguments)


def test_what_has_no_meaning_is_refused():
    made = nccl_tf.ExperienceReplay
    memory = nccl_tf.ReservoirMemory(4, IMAGE_SHAPE)
    with pytest.raises(nccl_tf.UserError, match=r"'logits'.*extras=\{'logits': \(\(4,\)"):
        made(tiny_network(), memory, dark=1.0)
    with pytest.raises(nccl_tf.UserError, match="leave no memory loss"):
        made(tiny_network(), memory, replay_labels=0.0)
    with pytest.raises(nccl_tf.UserError, match="dark=-1"):
        made(tiny_network(), memory, dark=-1.0)


def test_diagnostics_refuse_it():
    learner = nccl_tf.NCCL(tiny_network(), nccl_tf.ReservoirMemory(9), dark=0.5)
    stream = nccl_tf.load_stream("permuted_digits", num_tasks=2, examples_per_task=20)
    looks = nccl_tf.callbacks.ForgettingDiagnostics(stream)
    with pytest.raises(nccl_tf.UserError, match="logits are not stored"):
        looks.set_model(learner)
