"""Metrics on matrices worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf import metrics
from nccl_tf.errors import UserError

NAN = float("nan")
MATRIX = [
    [0.9, 0.2, 0.1],
    [0.7, 0.8, 0.3],
    [0.6, 0.5, 1.0],
]


def test_hand_made_matrix():
    assert metrics.average_accuracy(MATRIX) == pytest.approx((0.6 + 0.5 + 1.0) / 3)
    assert metrics.forgetting(MATRIX) == pytest.approx(((0.9 - 0.6) + (0.8 - 0.5)) / 2)
    assert metrics.learning_accuracy(MATRIX) == pytest.approx((0.9 + 0.8 + 1.0) / 3)
    assert metrics.backward_transfer(MATRIX) == pytest.approx(((0.6 - 0.9) + (0.5 - 0.8)) / 2)
    initial = [0.1, 0.15, 0.05]
    expected = ((0.2 - 0.15) + (0.3 - 0.05)) / 2
    assert metrics.forward_transfer(MATRIX, initial) == pytest.approx(expected)


def test_forgetting_takes_the_best_between_task_and_end():
    """Not before the task was learned, and not at the end."""
    matrix = [
        [0.5, 0.95, NAN],
        [0.8, 0.6, NAN],
        [0.7, 0.65, 0.9],
    ]
    # Task 0: best of rows 0, 1 is 0.8. Task 1: row 1 alone (0.95 came before it was learned).
    assert metrics.forgetting(matrix) == pytest.approx(((0.8 - 0.7) + (0.6 - 0.65)) / 2)


def test_forgetting_is_negative_when_later_tasks_help():
    matrix = [[0.5, NAN], [0.75, 0.9]]
    assert metrics.forgetting(matrix) == pytest.approx(-0.25)
    assert metrics.backward_transfer(matrix) == pytest.approx(0.25)


def test_upper_triangle_is_not_needed_but_for_forward_transfer():
    lower = np.where(np.tri(3, dtype=bool), MATRIX, NAN)
    for name in ("average_accuracy", "forgetting", "learning_accuracy", "backward_transfer"):
        metric = getattr(metrics, name)
        assert metric(lower) == metric(MATRIX)
    assert math.isnan(metrics.forward_transfer(lower, [0, 0, 0]))


def test_missing_last_row_is_not_hidden():
    assert math.isnan(metrics.average_accuracy([[0.5, NAN], [NAN, 0.9]]))
    assert math.isnan(metrics.forgetting([[0.5, NAN], [NAN, 0.9]]))


def test_a_missing_row_in_between_leaves_the_best_unknown():
    """In whatever order: Python's max skips a nan that is not the first."""
    for first, second in ((0.9, NAN), (NAN, 0.9)):
        matrix = [[first, NAN, NAN], [second, 0.8, NAN], [0.6, 0.5, 1.0]]
        assert math.isnan(metrics.forgetting(matrix))


def test_single_task():
    assert metrics.average_accuracy([[0.7]]) == metrics.learning_accuracy([[0.7]]) == 0.7
    assert math.isnan(metrics.forgetting([[0.7]]))
    assert math.isnan(metrics.backward_transfer([[0.7]]))
    assert math.isnan(metrics.forward_transfer([[0.7]], [0.1]))


@pytest.mark.parametrize("matrix", [[], [0.5], [[0.5, 0.5]], np.zeros((0, 0))])
def test_refuses_what_is_no_square_matrix(matrix):
    with pytest.raises(UserError, match="shape"):
        metrics.average_accuracy(matrix)


def test_refuses_initial_accuracy_of_another_length():
    with pytest.raises(UserError, match="3 tasks"):
        metrics.forward_transfer(MATRIX, [0.1, 0.2])


@given(
    st.integers(2, 6).flatmap(
        lambda k: st.lists(
            st.lists(st.floats(0, 1), min_size=k, max_size=k), min_size=k, max_size=k
        )
    )
)
def test_forgetting_is_at_least_minus_backward_transfer(matrix):
    assert metrics.forgetting(matrix) >= -metrics.backward_transfer(matrix) - 1e-12
