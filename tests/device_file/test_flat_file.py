"""What is found in a finished file, of faults of the converter too."""

import pytest
import tensorflow as tf

from nccl_tf.device_file.flat_file import FlatFile

X = tf.TensorSpec([3], tf.float32, name="x")
FLAG = tf.TensorSpec([], tf.bool, name="flag")


def converted(function):
    """A function of X and FLAG as the converter makes it, without the walker."""
    traced = tf.function(function, input_signature=[X, FLAG], autograph=False)
    concrete = [traced.get_concrete_function()]
    return tf.lite.TFLiteConverter.from_concrete_functions(concrete, traced).convert()


def twice(x):
    total = tf.reduce_sum(x * 2)
    return total, total


def apart(x):
    total = tf.reduce_sum(x)
    return total, total + 1


def received(x):
    return x, x * 2


@pytest.mark.parametrize("branch", [twice, received])
def test_a_branch_that_returns_one_tensor_twice_or_one_it_received_is_found(branch):
    def function(x, flag):
        other = apart if branch is twice else lambda x: (x + 1, x - 1)
        one, two = tf.cond(flag, lambda: branch(x), lambda: other(x))
        return one + 3 * two

    assert len(FlatFile(converted(function)).repeating_branches()) == 1


def test_branches_that_make_each_result_are_not():
    def function(x, flag):
        one, two = tf.cond(flag, lambda: apart(x), lambda: apart(x * x))
        return one + 3 * two

    content = converted(function)
    assert not FlatFile(content).repeating_branches()


def test_metadata_come_back_beside_those_of_others():
    content = converted(lambda x, flag: tf.where(flag, x, -x))
    values = {"classes": ["a", "é"], "range": [0.0, 1.5]}
    again = FlatFile(FlatFile(content).with_metadata(values))
    assert again.metadata() == values
    assert again.operations == FlatFile(content).operations
    assert again.custom() == []
