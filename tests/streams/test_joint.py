"""The union of a stream's tasks: every example once a pass, with its own task."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams import Examples, JointTask, Task


def task(number, count):
    """Images whose pixels hold the number of the example plus 50 times the task's number."""
    values = np.arange(count, dtype=np.uint8) + 50 * number
    images = values[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    examples = Examples(images, np.full(count, number, np.int32))
    return Task(number, (number,), count, lambda: examples, lambda: examples)


def read(batches):
    """Pixel values and weights of every element; checks that labels and tasks go with them."""
    values, weights = [], []
    for inputs, labels, weight in batches.as_numpy_iterator():
        value = inputs["inputs"][:, 0, 0, 0]
        assert (inputs["task"] == value // 50).all() and (labels == value // 50).all()
        values.append(value), weights.append(weight)
    return np.concatenate(values), np.concatenate(weights)


def test_a_pass_has_every_example_of_every_task_once():
    """In an order of the seed."""
    joint = JointTask([task(0, 7), task(1, 5)])
    batches = joint.train_batches(batch_size=5, seed=3, passes=2)
    assert joint.num_train == 12
    assert joint.steps(5, 2) == batches.cardinality() == 6
    values, weights = read(batches)
    passes = values[:15], values[15:]
    for number, part in enumerate(passes):
        kept = part[weights[15 * number : 15 * number + 15] == 1]
        assert sorted(kept) == [*range(7), *range(50, 55)]
    assert (passes[0] != passes[1]).any()
    np.testing.assert_array_equal(read(joint.train_batches(5, seed=3, passes=2))[0], values)
    assert (read(joint.train_batches(5, seed=4, passes=2))[0] != values).any()


def test_the_tasks_are_mixed():
    values, _ = read(JointTask([task(0, 40), task(1, 40)]).train_batches(10))
    assert 0 < (values[:40] >= 50).sum() < 40


def test_no_tasks():
    with pytest.raises(UserError, match="at least one task"):
        JointTask([])
