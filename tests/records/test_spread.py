"""Mean and deviation, by hand."""

import math

import numpy as np
import pytest

from nccl_tf.records.spread import spread


def test_it_is_the_population_deviation_and_the_error_that_of_the_sample():
    found = spread([1.0, 2.0, 6.0])
    assert (found.mean, found.size) == (3, 3)
    assert found.std == pytest.approx(math.sqrt((4 + 1 + 9) / 3))
    assert found.error == pytest.approx(math.sqrt((4 + 1 + 9) / 2) / math.sqrt(3))


def test_one_value_has_no_error_and_none_has_no_mean():
    assert spread([0.5])[:] == (0.5, 0.0, 1)
    assert math.isnan(spread([0.5]).error)
    assert np.isnan(spread([])[:2]).all() and spread([]).size == 0
    assert np.isnan(spread([0.5, None]).mean)


def test_runs_are_the_first_axis():
    found = spread([[1.0, 2.0], [3.0, 2.0]])
    np.testing.assert_array_equal(found.mean, [2, 2])
    np.testing.assert_array_equal(found.std, [1, 0])
