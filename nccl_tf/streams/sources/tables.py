"""The tables of scikit-learn, which need no download."""

from typing import Any

import numpy as np

from nccl_tf.streams.arrays import ExampleSet, PixelScaling, set_from_arrays
from nccl_tf.streams.seeding import TABLE_TEST, generator

TEST_SHARE = 0.2


def load_breast_cancer() -> ExampleSet:
    """Load 455 training and 114 test examples of 30 numbers, malignant (0) or benign (1).

    The domains are the values of "mean fractal dimension", the least telling column.
    """
    import sklearn.datasets

    return _cut_table(sklearn.datasets.load_breast_cancer(), "mean fractal dimension")


def load_diabetes() -> ExampleSet:
    """Load 354 training and 88 test examples of 10 numbers, with a number to predict.

    That number, the progression of the disease after a year, is divided by its standard deviation
    after its mean is subtracted, both of the training examples. The domains are the ages.
    """
    import sklearn.datasets

    return _cut_table(sklearn.datasets.load_diabetes(), "age")


def _cut_table(table: Any, column: str) -> ExampleSet:
    """Training and test examples, standardised by the training examples, with their domains.

    The test examples are a random fifth, the same for every seed.
    """
    inputs, targets = table.data.astype(np.float64), table.target
    order = generator(0, TABLE_TEST).permutation(len(targets))
    count = round(TEST_SHARE * len(targets))
    test, train = np.sort(order[:count]), np.sort(order[count:])
    values = inputs[:, list(table.feature_names).index(column)]
    inputs = _standardised(inputs, train)
    if targets.dtype.kind == "f":
        targets = _standardised(targets, train)
    return set_from_arrays(
        (inputs[train], targets[train]),
        (inputs[test], targets[test]),
        PixelScaling(1.0),
        (values[train], values[test]),
    )


def _standardised(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    return (values - values[train].mean(axis=0)) / values[train].std(axis=0)
