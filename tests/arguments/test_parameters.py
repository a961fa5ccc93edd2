"""Ranges and choices of parameters."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from nccl_tf.arguments.parameters import Parameter
from nccl_tf.errors import UserError

numbers = st.floats(-10, 10)


@given(numbers, numbers, numbers, st.booleans())
def test_a_number_passes_exactly_when_it_is_in_range(value, low, high, inclusive):
    bounds = {"ge": low, "le": high} if inclusive else {"gt": low, "lt": high}
    row = Parameter("x", "float", 0.0, help="", **bounds)
    if low <= value <= high and (inclusive or low < value < high):
        assert row.check(value) == value
    else:
        with pytest.raises(UserError, match=r"^--x=.* is out of range: expected a finite number"):
            row.check(value)


def test_none_passes_only_where_it_is_the_default():
    assert Parameter("x", "int", None, help="", ge=1).check(None) is None
    with pytest.raises(UserError, match=r"^--x=None is out of range: expected an int"):
        Parameter("x", "int", 1, help="", ge=1).check(None)


@pytest.mark.parametrize(
    ("value", "shown"), [("0.5", "'0.5'"), ([1.0], r"\[1\.0\]"), (np.ones(2), r"\[1\. 1\.\]")]
)
def test_what_is_no_number_is_refused_by_name(value, shown):
    with pytest.raises(UserError, match=f"^--x={shown} is out of range: expected a finite number"):
        Parameter("x", "float", 1.0, help="").check(value)


@pytest.mark.parametrize("value", [2.5, np.float32(0.5), float("inf")])
def test_an_integer_has_no_fraction(value):
    row = Parameter("x", "int", 1, help="", ge=0)
    assert row.check(2.0) == 2.0 and row.check(np.int64(3)) == 3
    with pytest.raises(UserError, match=r"^--x=.* is out of range: expected an integer of at lea"):
        row.check(value)


def test_a_choice_is_one_of_its_names():
    row = Parameter("x", "choice", "a", help="", choices=("a", "b"))
    assert row.check("b") == "b" and row.describe_range() == "one of a, b"
    with pytest.raises(UserError, match="choose one of a, b"):
        row.check("c")
