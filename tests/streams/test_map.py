"""A stream of what a function makes of the inputs of another."""

from dataclasses import replace

import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError

RANDOM = np.random.default_rng(0)
INPUTS = RANDOM.normal(size=(40, 6)).astype("float32")
NAMES = np.array(["cat", "ant", "dog", "bee"] * 10)
DATA = (INPUTS, NAMES)


def named(head="single"):
    classes = [["dog", "cat"], ["bee", "ant"]]
    return nccl_tf.stream_from_arrays(DATA, DATA, classes=classes, head=head)


def test_tasks_and_names_stay():
    stream = named("multi")
    mapped = stream.map(lambda inputs: 2.0 * inputs[:, :3])
    assert mapped.class_names == ("ant", "bee", "cat", "dog")
    assert mapped.task_classes == stream.task_classes and mapped.heads == stream.heads
    assert mapped.example_shape == (3,) and mapped.example_dtype == "float32"
    for task, before in zip(mapped, stream, strict=True):
        for part in ("train", "test"):
            now, old = getattr(task, part), getattr(before, part)
            np.testing.assert_array_equal(now.inputs, 2.0 * old.inputs[:, :3])
            np.testing.assert_array_equal(now.labels, old.labels)


def test_the_function_runs_once_over_each_part():
    calls = []

    def counted(inputs):
        calls.append(len(inputs))
        return inputs

    stream = nccl_tf.load_stream("split_digits", max_tasks=2)
    mapped = stream.with_validation(0.2).map(counted)
    assert len(calls) == 6
    for task in (*mapped, *mapped):
        assert task.train and task.test and task.validation
    assert len(calls) == 6


def test_all_parts_are_of_the_moment_in_which_the_stream_is_mapped():
    factor = 2.0
    tasks = nccl_tf.stream_from_arrays(DATA, DATA, num_tasks=2).with_validation(0.2)
    mapped = replace(tasks, tuning=tasks.tasks[1:]).map(lambda inputs: factor * inputs)
    factor = 0.0
    for task, before in zip((*mapped, *mapped.tuning), (*tasks, tasks[1]), strict=True):
        for part in ("train", "test", "validation"):
            now, old = getattr(task, part), getattr(before, part)
            np.testing.assert_array_equal(now.inputs, 2.0 * old.inputs)


def test_inputs_with_names():
    mapped = named().map(lambda inputs: {"a": inputs, "b": inputs[:, :2]})
    assert mapped.example_shape == {"a": (6,), "b": (2,)}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda inputs: inputs[1:], "of the train examples of task 0: .* labels for"),
        (lambda inputs: inputs * np.nan, "of the train examples of task 0: .*NaN"),
        (lambda inputs: inputs[:, : 1 + (inputs[0, 0] == FIRST)], "mapped examples of task"),
    ],
)
def test_what_makes_no_stream_is_refused(function, message):
    with pytest.raises(UserError, match=message):
        named().map(function)


FIRST = named()[0].train.inputs[0, 0]
