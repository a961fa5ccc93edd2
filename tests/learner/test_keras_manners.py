"""A learner answers as a Keras model does: silence, progress, wrong calls, single batches."""

import csv
import re

import keras
import numpy as np
import pytest

import nccl_tf
from tests.tiny import tiny_network

RANDOM = np.random.default_rng(0)
LABELS = np.arange(40, dtype=np.int32) % 2
IMAGES = (
    RANDOM.integers(0, 60, (40, 4, 4, 1), dtype=np.uint8)
    + 150 * LABELS.astype(np.uint8)[:, None, None, None]
)


def compiled(memory=None):
    learner = nccl_tf.NCCL(tiny_network(), memory or nccl_tf.RingMemory(3, [[0, 1], [2, 3]]))
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    return learner


def test_progress_is_a_line_without_nan(capsys):
    """In the first task a ring has nothing to replay, so that ten quantities are not measured."""
    learner = compiled()
    for verbose in (1, 2):
        learner.fit(
            IMAGES, LABELS, batch_size=1, verbose=verbose, validation_split=0.1, task_id=0,
            end_task=False,
        )  # fmt: skip
        learner.evaluate(IMAGES, LABELS, batch_size=1, verbose=verbose)
        printed = capsys.readouterr().out
        assert "loss" in printed and "nan" not in printed
        lines = re.split(r"[\r\n\x08]+", printed)
        assert max(map(len, lines)) < 160


@pytest.mark.eager
def test_the_progress_bar_shows_all_logs_where_it_is_asked_to(capsys):
    learner = compiled(nccl_tf.ReservoirMemory(8))
    learner.fit(IMAGES, LABELS, verbose=2, logs="all")
    assert "alpha_h" in capsys.readouterr().out
    with pytest.raises(nccl_tf.UserError, match="unknown logs 'some'"):
        learner.fit(IMAGES, LABELS, logs="some")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(True, id="from the first", marks=pytest.mark.eager),
        pytest.param(False, id="from the second"),
    ],
)
def test_a_log_file_over_tasks_has_one_set_of_columns(first, tmp_path):
    """Keras names the columns of validation after those of training where it has none yet."""
    learner, path = compiled(nccl_tf.ReservoirMemory(8)), tmp_path / "log.csv"
    for task, validates in enumerate((first, True)):
        history = learner.fit(
            IMAGES, LABELS, verbose=0, task_id=task, validation_split=0.1 * validates,
            callbacks=[keras.callbacks.CSVLogger(path, append=True)],
        ).history  # fmt: skip
    header, *rows = csv.reader(path.read_text().splitlines())
    assert {len(row) for row in rows} == {len(header)}
    measured = {name for name in history if not name.startswith("val_")}
    assert {f"val_{name}" for name in measured} == history.keys() - measured
    assert set(header) == {"epoch", *history}
    last = dict(zip(header, rows[-1], strict=True))
    assert float(last["val_loss"]) == pytest.approx(history["val_loss"][0])
    assert float(last["alpha_h"]) == pytest.approx(0.1) and last["val_alpha_h"] == "nan"


def test_a_verb_before_compile_says_so():
    learner = nccl_tf.Finetune(tiny_network())
    for verb in ("fit", "evaluate", "train_on_batch", "test_on_batch"):
        with pytest.raises(ValueError, match=r"You must call `compile\(\)`"):
            getattr(learner, verb)(IMAGES, LABELS)


@pytest.fixture(scope="module")
def learner():
    return compiled(nccl_tf.ReservoirMemory(9))


def test_wrong_data_are_refused_as_by_keras(learner):
    for wrong in ("abc", 5):
        with pytest.raises(ValueError, match="Unrecognized data type"):
            learner.fit(wrong)
    with pytest.raises(ValueError, match="cardinality"):
        learner.fit(IMAGES, LABELS[:5])
    with pytest.raises(TypeError, match="nonsense"):
        learner.fit(IMAGES, LABELS, nonsense=1)


def test_wrong_parts_of_a_learner_are_refused():
    for wrong in ("mlp", keras.layers.Dense(2)):
        with pytest.raises(nccl_tf.UserError, match=r"as network, expected a keras\.Model"):
            nccl_tf.Finetune(wrong)
    for wrong in ("ring", 50):
        with pytest.raises(nccl_tf.UserError, match="as the memory of ExperienceReplay, expected"):
            nccl_tf.ExperienceReplay(tiny_network(), wrong)
    with pytest.raises(nccl_tf.UserError, match="as optimizer, expected"):
        nccl_tf.Finetune(tiny_network()).compile("zzz")


@pytest.fixture
def floatx_of_64_bits():
    before = keras.config.floatx()
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx(before)


def test_all_of_keras_may_be_in_float64(floatx_of_64_bits):
    dense = keras.layers.Dense(2, dtype="float64")  # The global policy may be of before.
    network = keras.Sequential([keras.Input((3,)), dense])
    learner = nccl_tf.NCCL(network, nccl_tf.ReservoirMemory(20))
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], run_eagerly=True)
    draws = np.random.default_rng(0)
    for _ in range(2):
        history = learner.fit(draws.normal(size=(40, 3)), draws.integers(0, 2, 40), verbose=0)
    assert network.weights[0].dtype == "float64" and np.isfinite(history.history["loss"]).all()
