"""The diagnostics: what they measure, by hand, and that they change nothing."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.callbacks import ForgettingDiagnostics
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from tests.diagnostics import tiny
from tests.methods.learners import assert_same_state, make
from tests.tiny import tiny_batches, tiny_network


def trained(name, watched=True, extent="full", **compile_arguments):
    learner = make(name, **compile_arguments)
    diagnostics = ForgettingDiagnostics(tiny.tasks(), extent, subset=40, batch_size=5)
    for task in (0, 1):
        callbacks = [diagnostics] if watched else []
        learner.fit(tiny_batches(task), task_id=task, verbose=0, callbacks=callbacks)
    return learner, diagnostics


def check_rows(record):
    first, second = record["tasks"]
    assert first["steps"] == 0 == first["gamma_raw"] and first["draws"] is None
    assert second["steps"] == 12
    numbers = [second["gamma_raw"], second["gamma_surrogate"], *second["draws"]["overfitting"]]
    assert np.isfinite(numbers).all() and len(second["draws"]["overfitting"]) == 10
    for part in (first["first_task"], second["first_task"]):
        assert all(np.isfinite(value) for value in part.values())


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, row in METHODS.items()
        if not row.options.get("dark") and "diagnostics" not in row.refuses
    ],
)
def test_any_learner_is_measured_and_not_changed(name):
    one, _ = trained(name, watched=False)
    other, diagnostics = trained(name)
    assert_same_state(one, other)
    check_rows(diagnostics.record())


@pytest.fixture(scope="module")
def er_ring():
    """A learner that was measured in every step, and what was."""
    return trained("er_ring", steps_per_execution=4)


def test_measured_and_not_changed(er_ring):
    one, _ = trained("er_ring", watched=False, steps_per_execution=4)
    other, diagnostics = er_ring
    assert_same_state(one, other)
    check_rows(diagnostics.record())


def test_batch_norm_and_dropout_are_not_touched():
    def weights(watched):
        network = keras.Sequential(
            [
                keras.Input((4, 4, 1), dtype="uint8"),
                keras.layers.Rescaling(1 / 255),
                keras.layers.Flatten(),
                keras.layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(1)),
                keras.layers.BatchNormalization(),
                nccl_tf.networks.layers.CountedDropout(0.3, 1),
                keras.layers.Dense(4, kernel_initializer=keras.initializers.GlorotUniform(2)),
            ]
        )
        learner = nccl_tf.Finetune(network, seed=3)
        learner.compile(keras.optimizers.SGD(0.25), run_eagerly=True)
        callbacks = [ForgettingDiagnostics(tiny.tasks(), "full")] if watched else []
        for task in (0, 1):
            learner.fit(tiny_batches(task, 10), task_id=task, verbose=0, callbacks=callbacks)
        return learner.get_weights()

    for left, right in zip(weights(False), weights(True), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    "name", ["nccl_reservoir", pytest.param("mega1", marks=pytest.mark.nightly)]
)
def test_gamma_is_summed_as_the_learner_s_log_sums(name):
    """For a learner that measures gamma itself, and projects its steps or does not."""
    learner = make(name)
    log = learner.record_steps(1)
    diagnostics = ForgettingDiagnostics(tiny.tasks(), "subset", subset=40)
    for task in (0, 1):
        learner.fit(tiny_batches(task), task_id=task, verbose=0, callbacks=[diagnostics])
    columns, rows = log.header(), np.array(log.take(0, whole=True))[12:]
    steps = {name: rows[:, i] for i, name in enumerate(columns)}
    row = diagnostics.record()["tasks"][1]
    for form in ("gamma_raw", "gamma_surrogate"):
        np.testing.assert_allclose(row[form], steps[f"cumulative_{form}"][-1], rtol=1e-12)
        rebooked = row[f"{form}_at_0"] + 1.0 * row[f"{form}_slope"]
        np.testing.assert_allclose(row[form], rebooked, rtol=1e-6, atol=1e-9)
    raw_at_0 = -(steps["beta_h_mean"] * steps["lambda_mean"]).sum()
    np.testing.assert_allclose(row["gamma_raw_at_0"], raw_at_0, rtol=1e-5)
    assert steps["interference_mean"].any()
    agree = row["gamma_surrogate_at_0"] == row["gamma_raw_at_0"]
    assert agree is not learner.projects
    share = np.mean(steps["beta_h_mean"] >= steps["alpha_h_mean"])
    assert row["share_beta_not_below_alpha"] == pytest.approx(share)


@pytest.mark.nightly
def test_a_subset_takes_every_tenth_step_times_ten(er_ring):
    full = er_ring[1].record()
    subset = trained("er_ring", extent="subset")[1].record()
    assert (full["gamma_every"], subset["gamma_every"]) == (1, 10)
    assert (full["subset"], subset["subset"]) == (None, 40)
    # 12 steps of the second task: numbers 0 and 10 are measured.
    assert full["tasks"][1]["previous"]["examples"] == 60
    assert subset["tasks"][1]["previous"]["examples"] == 40
    shares = [row["tasks"][1]["share_beta_not_below_alpha"] for row in (full, subset)]
    assert shares[0] == shares[1] == 1.0
    assert subset["tasks"][1]["gamma_raw"] != full["tasks"][1]["gamma_raw"]


def test_bad_arguments():
    with pytest.raises(UserError, match="ful"):
        ForgettingDiagnostics(tiny.tasks(), "ful")
    with pytest.raises(UserError, match="no tasks"):
        ForgettingDiagnostics([])
    learner = make("finetune", run_eagerly=True)
    diagnostics = ForgettingDiagnostics(tiny.tasks()[:1])
    learner.fit(tiny_batches(0, 5), verbose=0, callbacks=[diagnostics])
    with pytest.raises(UserError, match="end of task 1, but the diagnostics know of the tasks 0"):
        learner.fit(tiny_batches(1, 5), verbose=0, callbacks=[diagnostics])


def test_a_learner_without_gradients_is_refused():
    learner = make("slda")
    diagnostics = ForgettingDiagnostics(tiny.tasks())
    with pytest.raises(UserError, match="a SLDA, which learns without a gradient step"):
        learner.fit(tiny_batches(0), verbose=0, callbacks=[diagnostics])


def test_events_for_tensorboard(tmp_path):
    learner = make("finetune", run_eagerly=True)
    diagnostics = ForgettingDiagnostics(tiny.tasks(), log_dir=tmp_path)
    learner.fit(tiny_batches(0), verbose=0, callbacks=[diagnostics])
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    assert b"forgetting/gamma_raw" in content and b"first_task/gradient_norm" in content


@pytest.mark.parametrize("several", [False, True])
def test_what_cannot_be_measured_is_refused(several):
    rows, targets = np.zeros((8, 3), np.float32), np.arange(8) % 2
    inputs = {"a": rows, "b": rows} if several else rows
    data = tf.data.Dataset.from_tensor_slices((inputs, targets if several else rows[:, 0])).batch(4)
    stream = nccl_tf.stream_from_datasets([(data, data)])
    a, b = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    joined = keras.layers.Add()([a, b]) if several else a
    network = keras.Model({"a": a, "b": b} if several else a, keras.layers.Dense(2)(joined))
    learner = nccl_tf.Finetune(network)
    learner.compile("sgd", None if several else "mse")
    diagnostics = ForgettingDiagnostics(list(stream))
    reason = "inputs in a dict" if several else "the loss mse"
    with pytest.raises(UserError, match=f"received {reason} for ForgettingDiagnostics"):
        learner.fit(stream[0], callbacks=[diagnostics], verbose=0)


def test_a_decayed_rate_is_measured():
    learner = nccl_tf.Finetune(tiny_network(), rate_decay=0.5)
    learner.compile(keras.optimizers.SGD(0.2), run_eagerly=True)
    diagnostics = ForgettingDiagnostics(tiny.tasks(), "full", subset=40, batch_size=5)
    for task in (0, 1):
        learner.fit(tiny_batches(task), task_id=task, verbose=0, callbacks=[diagnostics])
    alphas = [row["alpha"] for row in diagnostics.record()["tasks"]]
    assert alphas == pytest.approx([0.1, 0.05])
