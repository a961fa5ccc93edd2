"""The rank correlation over runs, and its bootstrap over methods."""

import numpy as np
import pytest
from scipy import stats

from nccl_tf.reports.figures.correlation import (
    bootstrap_interval,
    describe_correlation,
    rank_correlation,
)


def test_it_is_spearmans_over_the_known_pairs():
    x, y = np.array([1.0, 2, 2, 4, np.nan]), np.array([1.0, 3, 2, 9, 5])
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x[:4], y[:4]).statistic)
    assert np.isnan(rank_correlation(x[:2], y[:2]))
    assert np.isnan(rank_correlation(x[:4], np.ones(4)))


def test_copies_of_runs_make_it_no_surer():
    """A p-value over all points would fall with each copy; the methods stay as few."""
    random = np.random.default_rng(1)
    methods = [(random.normal(size=3), random.normal(size=3)) for _ in range(6)]
    copied = [(np.tile(x, 50), np.tile(y, 50)) for x, y in methods]
    low, high = bootstrap_interval(methods)
    assert low < rank_correlation(*np.concatenate(methods, axis=1)) < high
    assert bootstrap_interval(copied) == pytest.approx((low, high), abs=0.01)


def test_words_name_the_numbers_of_runs_and_methods():
    methods = {name: (np.arange(4.0) + i, np.arange(4.0) + i) for i, name in enumerate("abc")}
    text = describe_correlation(methods)
    assert "1.00 over 12 runs of 3 methods, 1.00 to 1.00 in 95% of bootstraps" in text
    two = {name: methods[name] for name in "ab"}
    assert describe_correlation(two).endswith("over 8 runs of 2 methods")
    assert "too few runs" in describe_correlation({"a": (np.arange(2.0), np.arange(2.0))})
