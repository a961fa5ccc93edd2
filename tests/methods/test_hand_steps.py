"""One step of each method against its formula in NumPy, in float64."""

import numpy as np
import pytest

import nccl_tf
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

F, G = gradient(*MEMORY), gradient(*STREAM)


def replay(learner_class, images=MEMORY[0], labels=MEMORY[1], **kwargs):
    return learner_class(
        network(), FixedMemory(images, labels), memory_batch_size=len(labels), **kwargs
    )


def against() -> tuple[np.ndarray, np.ndarray]:
    """A memory batch whose gradient interferes: the stream's images with other labels."""
    return STREAM[0], np.array([2, 0])


def test_finetune():
    after = one_step(nccl_tf.Finetune(network()))
    np.testing.assert_allclose(after, WEIGHTS - ALPHA * G, rtol=1e-12)


def test_er_takes_the_mean_over_the_joint_batch():
    expected = WEIGHTS - ALPHA * (3 * F + 2 * G) / 5
    after = one_step(replay(nccl_tf.ExperienceReplay), in_graph=True)
    np.testing.assert_allclose(after, expected, rtol=1e-12)


def test_er_sum_of_means():
    learner = replay(nccl_tf.ExperienceReplay, er_weighting="sum_of_means")
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * (F + G), rtol=1e-12)


def test_agem_projects_in_interference():
    f = gradient(*against())
    dot = np.sum(f * G)
    assert dot < 0
    expected = WEIGHTS - ALPHA * (G - dot / np.sum(f * f) * f)
    after = one_step(replay(nccl_tf.AGEM, *against()))
    np.testing.assert_allclose(after, expected, rtol=1e-12)


def test_agem_is_sgd_in_transfer():
    same = STREAM
    np.testing.assert_allclose(
        one_step(replay(nccl_tf.AGEM, *same)), WEIGHTS - ALPHA * G, rtol=1e-12
    )


def test_nccl_in_interference():
    f = gradient(*against())
    dot = np.sum(f * G)
    assert dot < 0
    expected = WEIGHTS - ALPHA * (1 - dot / np.sum(f * f)) * f - ALPHA * G
    after = one_step(replay(nccl_tf.NCCL, *against()), in_graph=True)
    np.testing.assert_allclose(after, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("smoothness", "beta_max"), [(1.0, None), (3.5, None), (1.0, 0.5), (1.0, 0.01)]
)
def test_nccl_in_transfer(smoothness, beta_max):
    """With L = 1 the bound alpha (1 - delta) holds; with L = 3.5 beta* lies below it."""
    images = STREAM[0] + 0.3
    f = gradient(images, STREAM[1])
    dot = np.sum(f * G)
    assert dot > 0
    beta_star = (1 - ALPHA * smoothness) * dot / (smoothness * np.sum(G * G))
    beta = min(ALPHA * (1 - 0.05) if beta_max is None else beta_max, beta_star)
    assert (beta == beta_star) == ((smoothness, beta_max) == (3.5, None))
    learner = replay(
        nccl_tf.NCCL, images, STREAM[1], smoothness=smoothness, delta=0.05, beta_max=beta_max
    )
    np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * f - beta * G, rtol=1e-12)


def test_an_empty_memory_is_sgd():
    for learner_class in (
        nccl_tf.ExperienceReplay, nccl_tf.AGEM, nccl_tf.NCCL, nccl_tf.MEGAI, nccl_tf.MEGAII,
        nccl_tf.GEC,
    ):  # fmt: skip
        learner = replay(learner_class)
        rows = learner.memory.held
        learner.memory.held = rows._replace(weights=0 * rows.weights)
        np.testing.assert_allclose(one_step(learner), WEIGHTS - ALPHA * G, rtol=1e-12)


def test_logged_quantities_are_those_of_the_step():
    f = gradient(*against())
    learner = replay(nccl_tf.NCCL, *against())
    learner.compile("sgd", run_eagerly=True)
    learner.optimizer.learning_rate = ALPHA
    logs = learner.fit(stream(), verbose=0).history
    dot, ff, gg = np.sum(f * G), np.sum(f * f), np.sum(G * G)
    alpha_h = ALPHA * (1 - dot / ff)
    expected = {
        "lambda": dot,
        "cosine": dot / np.sqrt(ff * gg),
        "memory_gradient_norm": np.sqrt(ff),
        "stream_gradient_norm": np.sqrt(gg),
        "alpha_h": alpha_h,
        "beta_h": ALPHA,
        "interference": 1.0,
        "gamma_raw": ALPHA**2 / 2 * gg - ALPHA * (1 - alpha_h) * dot,
        "gamma_surrogate": ALPHA**2 / 2 * (gg - dot**2 / ff),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(logs[name][0], value, rtol=1e-5, err_msg=name)
