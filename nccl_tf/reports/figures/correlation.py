"""A rank correlation over runs, and how far it depends on which methods there are."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

Pairs = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
_DRAWS = 1000
_FEWEST_METHODS = 3
_SHARE = 0.95


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation over the pairs that are known.

    Returns:
        nan where fewer than three pairs are known, or one side is constant.
    """
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def bootstrap_interval(methods: Sequence[Pairs]) -> tuple[float, float]:
    """The middle 95 % of the rank correlations of as many methods, drawn with replacement.

    The runs of a method are near each other, so that they are no independent points: whole methods
    are drawn, each with all of its runs. Draws without a correlation are left out.

    Args:
        methods: The two values of each run, [runs] each, for each method.

    Returns:
        nan for both below three methods.
    """
    if len(methods) < _FEWEST_METHODS:
        return float("nan"), float("nan")
    draws = np.random.default_rng(0).integers(len(methods), size=(_DRAWS, len(methods)))
    values = [
        rank_correlation(*(np.concatenate([methods[i][side] for i in draw]) for side in (0, 1)))
        for draw in draws
    ]
    tail = (1 - _SHARE) / 2
    low, high = (
        np.nanquantile(values, [tail, 1 - tail]) if np.isfinite(values).any() else [np.nan] * 2
    )
    return float(low), float(high)


def describe_correlation(methods: Mapping[str, Pairs]) -> str:
    """The correlation in words, with the numbers of runs and methods.

    Args:
        methods: The two values of each run, one of each, by the method's name.
    """
    x, y = (np.concatenate([pair[side] for pair in methods.values()]) for side in (0, 1))
    rho = rank_correlation(x, y)
    if np.isnan(rho):
        return "too few runs for a rank correlation"
    runs = int((np.isfinite(x) & np.isfinite(y)).sum())
    text = f"Spearman's rank correlation {rho:.2f} over {runs} runs of {len(methods)} methods"
    low, high = bootstrap_interval(list(methods.values()))
    if np.isnan(low):
        return text
    return f"{text}, {low:.2f} to {high:.2f} in {_SHARE:.0%} of bootstraps over the methods"
