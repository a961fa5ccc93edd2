"""Validation examples that tasks hold out of their training examples."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.streams.validation import held_out
from tests.tiny import IMAGE_SHAPE, tiny_network

IMAGES = np.arange(40 * 16, dtype=np.uint8).reshape(40, *IMAGE_SHAPE)
LABELS = np.arange(40) % 4


@pytest.fixture(scope="module")
def stream():
    return nccl_tf.stream_from_arrays((IMAGES, LABELS), (IMAGES, LABELS), num_tasks=2, head="multi")


def test_each_class_gives_its_share_and_nothing_is_lost(stream):
    for task, held in zip(stream, stream.with_validation(0.2), strict=True):
        train, validation = held.train, held.validation
        assert held.num_train == len(train.labels) == 16 and task.validation is None
        assert sorted(validation.labels) == sorted([*task.classes] * 2)
        rows = [examples.inputs.reshape(-1, 16) for examples in (train, validation, task.train)]
        assert sorted(map(bytes, np.concatenate(rows[:2]))) == sorted(map(bytes, rows[2]))
        again = stream.with_validation(0.2)[task.task_id].validation
        np.testing.assert_array_equal(again.inputs, validation.inputs)


@pytest.mark.parametrize("share", [0, 1])
def test_a_share_that_is_none_is_refused(share, stream):
    with pytest.raises(UserError, match="the share"):
        stream.with_validation(share)


@pytest.mark.parametrize(("share", "count"), [(0.1, 7), (0.101, 8), (0.999, 69)])
def test_a_share_is_rounded_up_and_leaves_one_of_each_class(share, count):
    labels = np.repeat(np.arange(2), (70, 1))
    assert np.bincount(labels[held_out(labels, share, 0, 0)], minlength=2).tolist() == [count, 0]
    assert held_out(np.zeros((70, 3), np.float32), share, 0, 0).sum() == count
    with pytest.raises(UserError, match="two at least"):
        held_out(np.arange(3), share, 0, 0)


@pytest.mark.eager
def test_fit_and_learn_measure_them(stream):
    held, seen = stream.with_validation(0.2), []
    learner = nccl_tf.Finetune(tiny_network(), heads=stream.heads)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    history = learner.fit(held[0], epochs=2, verbose=0).history
    expected = learner.accuracy(*held[0].validation, task_id=0)
    assert history["val_accuracy"][-1] == pytest.approx(expected)
    watch = keras.callbacks.LambdaCallback(on_epoch_end=lambda _, logs: seen.append({**logs}))
    learner = nccl_tf.Finetune(tiny_network(), heads=stream.heads)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    nccl_tf.learn(learner, held, verbose=0, callbacks=[watch])
    assert ["val_accuracy" in logs for logs in seen] == [True, True]


def test_a_share_of_a_corpus_is_of_its_rows(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("ab" * 201, encoding="utf-8")
    stream = nccl_tf.load_stream(f"text:{tmp_path}", length=4)
    (task,), (whole,) = stream.with_validation(0.2), stream
    held = len(task.validation.labels)
    assert held == np.ceil(0.2 * whole.num_train)
    assert task.num_train == whole.num_train - held
