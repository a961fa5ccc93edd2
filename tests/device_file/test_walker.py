"""Functions emitted anew: conditionals, loops, calls and variables."""

import numpy as np
import pytest
import tensorflow as tf

from nccl_tf.device_file import walker
from nccl_tf.device_file.unsupported import UnsupportedError
from tests.device_file.lite import Lite

X = tf.TensorSpec([3], tf.float32, name="a0")
FLAG = tf.TensorSpec([], tf.bool, name="a1")
VALUES = np.array([1, -2, 3], np.float32)


def test_a_conditional_that_returns_one_tensor_twice():
    """Converted as it is, LiteRT 2.3 returns rubbish."""

    def function(x, flag):
        def double():
            y = tf.reduce_sum(x * 2)
            return y, y, x, tf.constant([7, 7]), tf.zeros([2]), y > 0

        def half():
            y = tf.reduce_sum(x / 2)
            return y, y + 1, x, tf.constant([7, 7]), tf.ones([2]), tf.constant(True)

        a, b, c, d, e, f = tf.cond(flag, double, half)
        return tf.concat([[a, b], c, tf.cast(d, tf.float32), e, [tf.cast(f, tf.float32)]], 0)

    lite = Lite(function, X, FLAG)
    assert not lite.file.repeating_branches()
    for flag in (True, False):
        wanted = function(tf.constant(VALUES), tf.constant(flag)).numpy()
        np.testing.assert_array_equal(lite(VALUES, np.bool_(flag)), wanted)


def test_conditionals_within_loops_within_calls():
    @tf.function(autograph=False)
    def inner(x):
        def step(i, total, kept):
            added = tf.cond(i % 2 == 0, lambda: total + x[i], lambda: total * 2)
            return i + 1, added, kept

        return tf.while_loop(lambda i, *_: i < 3, step, (0, 0.0, x))[1]

    lite = Lite(lambda x: inner(x) + inner(x + 1), X)
    wanted = (inner(tf.constant(VALUES)) + inner(tf.constant(VALUES) + 1)).numpy()
    np.testing.assert_allclose(lite(VALUES), wanted)


def test_a_list_of_tensors_in_a_loop():
    def function(x):
        made = tf.TensorArray(tf.float32, 3, element_shape=())
        loop = tf.while_loop(
            lambda i, _: i < 3, lambda i, made: (i + 1, made.write(i, x[i] * 2)), (0, made)
        )
        return loop[1].stack()

    np.testing.assert_array_equal(Lite(function, X)(VALUES), VALUES * 2)


def traced(function, *specs):
    return tf.function(function, input_signature=specs, autograph=False).get_concrete_function()


def test_variables_are_written_in_their_order():
    state, rows = tf.Variable([1.0, 2.0, 3.0]), tf.Variable(np.zeros((3, 2), np.int64))

    def step(x):
        state.assign_add(x)
        state.assign_sub([1.0, 1.0, 1.0])
        rows.scatter_update(tf.IndexedSlices(np.array([[1, 1], [2, 2]]), np.array([2, 2])))
        rows.scatter_add(tf.IndexedSlices(np.array([[1, 1], [2, 2]]), np.array([0, 0])))
        return state * 2.0, rows.sparse_read(np.array([2]))

    concrete = traced(step, X)
    again = tf.function(
        lambda x: walker.emitted(concrete, [x], {}), input_signature=[X], autograph=False
    )
    doubled, read = again(tf.constant(VALUES))
    np.testing.assert_array_equal(state.numpy(), [1, -1, 5])
    np.testing.assert_array_equal(doubled, 2 * state.numpy())
    np.testing.assert_array_equal(rows.numpy(), [[3, 3], [0, 0], [2, 2]])
    np.testing.assert_array_equal(read, [[2, 2]])


def test_what_puts_back_what_it_has_read_does_not_write():
    moved, kept, read, held = (tf.Variable([1.0, 2.0, 3.0]) for _ in range(4))

    def step(x, flag):
        before = tf.identity(kept.value())

        def skip():
            kept.assign(before)
            return 0

        def move():
            moved.assign_add(x)
            return 0

        tf.cond(flag, move, skip)
        held.assign(read.value())
        return read + x

    concrete = traced(step, X, FLAG)
    assert walker.written([concrete]) == {id(moved), id(held)}
    constants = {id(v): v.numpy() for v in (kept, read)}
    emitted = traced(lambda x, flag: walker.emitted(concrete, [x, flag], constants), X, FLAG)
    captured = {id(outer) for outer, _ in emitted.graph.captures}
    assert captured == {id(moved.handle), id(held.handle)}
    kept.assign([9.0, 9.0, 9.0])
    np.testing.assert_array_equal(
        emitted(tf.constant(VALUES), tf.constant(False)), VALUES + np.array([1, 2, 3], np.float32)
    )
    np.testing.assert_array_equal(kept.numpy(), [9, 9, 9])


@pytest.mark.parametrize("dtype", [tf.float64, tf.float16, tf.string])
def test_dtypes_that_litert_does_not_compute_in_are_refused(dtype):
    def function(x):
        if dtype == tf.string:
            return tf.strings.length(tf.strings.as_string(x))
        return tf.cast(tf.cast(x, dtype) * 2, tf.float32)

    with pytest.raises(UnsupportedError, match=dtype.name):
        Lite(function, X)


def test_the_first_operation_of_a_type_is_found_within_branches():
    concrete = traced(lambda x, flag: tf.cond(flag, lambda: tf.math.lgamma(x), lambda: x), X, FLAG)
    assert walker.name_of(concrete.graph, "Lgamma").endswith("Lgamma")
    assert walker.name_of(concrete.graph, "Erf") == ""
