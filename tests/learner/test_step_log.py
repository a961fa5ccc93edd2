import csv

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.measures import StepMeans
from nccl_tf.learner.options.step_log import StepLog
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


def test_quantities_average_over_the_steps_that_measured_them():
    metric = StepMeans(("a", "b"))
    for values in ([1.0, np.nan], [3.0, 7.0], [5.0, 8.0]):
        metric.update_state(tf.constant(values))
    result = metric.result()
    assert float(result["a"]) == 3.0 and float(result["b"]) == 7.5
    metric.reset_state()
    assert np.isnan(float(metric.result()["a"]))


def test_rows_hold_mean_minimum_maximum_and_the_running_sum():
    log = StepLog(("a",), ("a",), every=3, rows=4)
    for value in (1.0, 2.0, 6.0, 4.0):
        log.add(tf.constant([value]), tf.constant(True))
    assert log.header() == ["step", "a_mean", "a_min", "a_max", "cumulative_a"]
    assert log.take(0, whole=True) == [[3, 3.0, 1.0, 6.0, 9.0]]
    assert log.take(1, whole=False) == [[4, 4.0, 4.0, 4.0, 13.0]]


def test_what_is_not_measured_or_before_the_second_task_does_not_count():
    log = StepLog(("a",), ("a",), every=2, rows=4)
    log.add(tf.constant([9.0]), tf.constant(False))
    log.add(tf.constant([np.nan]), tf.constant(True))
    assert log.take(0, whole=True) == [[2, 9.0, 9.0, 9.0, 0.0]]


def test_windows_must_have_a_step():
    with pytest.raises(UserError, match="record_every"):
        StepLog(("a",), (), every=0, rows=4)


def learned(path, steps_per_execution):
    """The rows of a file that is written while a learner learns, and the learner."""
    memory = nccl_tf.RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)
    learner = nccl_tf.NCCL(tiny_network(), memory)
    learner.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps_per_execution)
    record = nccl_tf.callbacks.StepRecord(path, every=7)
    for task in (0, 1):
        learner.fit(tiny_batches(task, 100), verbose=0, callbacks=[record])
    record.finish()
    with path.open() as file:
        return list(csv.DictReader(file)), learner


@pytest.mark.nightly
def test_the_file_does_not_depend_on_steps_per_execution(tmp_path):
    one, learner = learned(tmp_path / "1.csv", 1)
    for steps in (50,):
        assert learned(tmp_path / f"{steps}.csv", steps)[0] == one
    assert [int(row["step"]) for row in one] == [7, 14, 21, 28, 35, 40]
    assert one[0]["lambda_mean"] == "" and one[-1]["lambda_mean"] != ""
    assert float(one[-1]["cumulative_gamma_raw"]) == pytest.approx(
        float(learner.option(StepLog).sums.numpy()[0]), rel=1e-8
    )
    assert float(one[1]["cumulative_gamma_raw"]) == 0.0
