"""Which tasks are evaluated after each task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nccl_tf.arguments.evaluate import checked_evaluate, tasks_to_evaluate
from nccl_tf.errors import UserError

CHOICES = st.one_of(st.sampled_from(["all", "new"]), st.integers(1, 30).map("every:{}".format))


def cells(evaluate, tasks):
    """(after, on) of all evaluations."""
    return {(i, j) for i in range(tasks) for j in tasks_to_evaluate(evaluate, i, tasks)}


def test_by_hand():
    assert cells("all", 3) == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)}
    assert cells("new", 3) == {(0, 0), (1, 1), (2, 0), (2, 1), (2, 2)}
    whole = {(1, j) for j in range(3)} | {(3, j) for j in range(5)} | {(4, j) for j in range(5)}
    assert cells("every:2", 5) == {(0, 0), (2, 2)} | whole
    before = {evaluate: len(tasks_to_evaluate(evaluate, -1, 5)) for evaluate in ("all", "new")}
    assert before == {"all": 5, "new": 1} and len(tasks_to_evaluate("every:2", -1, 5)) == 5


@given(CHOICES, st.integers(1, 25))
def test_the_diagonal_and_the_last_row_are_always_there(evaluate, tasks):
    needed = {(i, i) for i in range(tasks)} | {(tasks - 1, j) for j in range(tasks)}
    assert needed <= cells(evaluate, tasks) <= cells("all", tasks)


@given(CHOICES, st.integers(1, 25))
def test_the_shortest_name_means_the_same(evaluate, tasks):
    short = checked_evaluate(evaluate, tasks)
    assert cells(short, tasks) == cells(evaluate, tasks)
    assert checked_evaluate(short, tasks) == short
    if cells(short, tasks) == cells("all", tasks):
        assert short == "all"


@pytest.mark.parametrize("value", ["", "every", "every:0", "every:-1", "every:2.5", "All", "new "])
def test_another_value_is_refused(value):
    with pytest.raises(UserError, match=f"received evaluate={value}: expected all, new, or every"):
        checked_evaluate(value, 5)
