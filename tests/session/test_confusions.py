"""What classes are taken for, in the order in which they came."""

import contextlib
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.session.confusions import Confusions
from nccl_tf.session.evaluation import Evaluation
from tests.tiny import IMAGE_SHAPE, tiny_network

RANDOM = np.random.default_rng(0)
LABELS = np.arange(80) % 4
IMAGES = RANDOM.integers(0, 60, (80, *IMAGE_SHAPE), dtype=np.uint8)
IMAGES.reshape(80, -1)[np.arange(80), LABELS] = 255


def test_by_hand():
    """Classes 7 and 2 come first, then 5; an example of 2 is NaN (8 of 8 classes)."""
    cells = {0: [[7, 2, 2], [7, 7, 8], [3, 1, 1]], 1: [[7, 5, 2], [5, 5, 2], [3, 4, 2]]}
    confusions = Confusions([[7, 2], [5]], cells)
    assert confusions.classes == (7, 2, 5)
    np.testing.assert_array_equal(confusions.of(0), [[3, 0, 0], [1, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(confusions.of(-1), [[0, 0, 3], [0, 2, 0], [0, 0, 4]])
    np.testing.assert_array_equal(confusions.class_accuracy(), [[1, 0, np.nan], [0, 1, 1]])
    np.testing.assert_array_equal(confusions.accuracy_of(new=True), [3 / 5, 1])
    np.testing.assert_array_equal(confusions.accuracy_of(new=False), [np.nan, 2 / 5])
    np.testing.assert_array_equal(confusions.accuracy_of(), [3 / 5, 6 / 9])
    with pytest.raises(UserError, match="received task 2"):
        confusions.of(2)


class Counts:
    """A learner that gives the cells of one task after another."""

    def __init__(self, cells):
        self._cells = iter(cells)
        self.nan_count = types.SimpleNamespace(warning=lambda: None)

    def option(self, kind):
        return None

    def warn_once(self, *said):
        pass

    def use_weights(self, which):
        return contextlib.nullcontext()

    def confusion(self, images, labels, task_id):
        return tf.constant(next(self._cells), tf.int64)


def test_the_cells_of_tasks_are_added():
    """Two classes: of the third task, which is still to come, the accuracy alone is asked for."""
    learner = Counts([
        [[1, 1, 4], [0, 0, 3], [0, 1, 1]],
        [[0, 1, 2], [0, 2, 1], [1, 1, 5]],
        [[1, 0, 9], [1, 1, 1]],
    ])  # fmt: skip
    task = types.SimpleNamespace(test=(None, None), task_id=None)
    evaluation = Evaluation(learner, [task] * 3, keeps_confusions=True)
    evaluation.evaluate_after(1, lambda: None)
    np.testing.assert_array_equal(evaluation.matrix[1], [7 / 8, 5 / 8, 1 / 10])
    rights, taken, counts = evaluation.confusions["plain"][1]
    assert (rights, taken, counts) == ([0, 0, 0, 1], [0, 1, 2, 1], [3, 3, 1, 9])


def test_an_accuracy_of_no_example_is_nan():
    evaluation = Evaluation(
        Counts([np.zeros([0, 3])]), [types.SimpleNamespace(test=(None, None), task_id=None)],
        keeps_confusions=True,
    )  # fmt: skip
    evaluation.evaluate_after(0, lambda: None)
    assert np.isnan(evaluation.matrix).all()
    assert evaluation.confusions["plain"][0] == [[], [], []]


@pytest.fixture(scope="module")
def learned():
    data = (IMAGES, LABELS)
    stream = nccl_tf.stream_from_arrays(data, data, classes=[[3, 1], [0, 2]], head="single")
    model = nccl_tf.Finetune(tiny_network(), average_weights=0.5)
    model.compile(keras.optimizers.SGD(0.25))
    return model, stream, nccl_tf.learn(model, stream, verbose=0)


def test_a_result_agrees_with_its_matrix(learned):
    model, _, result = learned
    assert set(result.confusions.classes[:2]) == {1, 3}
    counts = result.confusion()
    assert counts.sum() == 80
    with model.use_weights("plain"):
        found = np.argmax(model.predict(IMAGES, verbose=0), axis=1)
    for i, right in enumerate(result.confusions.classes):
        for j, taken in enumerate(result.confusions.classes):
            assert counts[i, j] == np.sum((right == LABELS) & (found == taken))
    for each in (result, result.averaged):
        np.testing.assert_allclose(each.old_accuracy[1], each.matrix[1, 0])
        np.testing.assert_allclose(each.new_accuracy, np.diag(each.matrix))
        assert np.isnan(each.class_accuracy[0, 2:]).all() and np.isnan(each.old_accuracy[0])


def test_old_and_new_agree_with_the_matrix(learned):
    result = learned[2]
    first, second = result.old_and_new()
    assert first["task"] == 0 and np.isnan(first["before"]) and np.isnan(first["old"])
    assert first["new"] == first["all"] == second["before"] == result.matrix[0, 0]
    assert [second["old"], second["new"]] == result.matrix[1].tolist()
    assert second["all"] == pytest.approx(result.matrix[1].mean())  # tasks of one size


def test_its_picture_names_the_classes(learned):
    result = learned[2]
    axes = result.plot_confusion(0)
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert names == list(map(str, result.confusions.classes))


def test_its_shares_are_of_all_examples_of_a_class():
    """Of ten of class 0 four are right and six taken for a class that has not come."""
    known = Confusions([[0, 1]], {0: [[0, 0, 1], [0, 7, 1], [4, 6, 10]]})
    assert known.totals(0).tolist() == [10, 10]
    result = nccl_tf.LearnResult(np.ones((1, 1)), np.zeros(1), confusions=known)
    assert [text.get_text() for text in result.plot_confusion().texts] == ["40", "100"]


def test_another_metric_knows_no_classes():
    with pytest.raises(UserError, match="knows no classes"):
        nccl_tf.LearnResult(np.eye(2), np.zeros(2), "mae").confusion()
