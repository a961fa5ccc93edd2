"""The nearest class mean against examples worked out by hand, and beside SLDA."""

import keras
import numpy as np
import pytest

import nccl_tf
from tests.methods.test_slda import MEANS, X, Y, many


def fitted(inputs, labels, *, batch_size=2, **kwargs):
    classes = int(labels.max()) + 1
    network = keras.Sequential([keras.Input(inputs.shape[1:]), keras.layers.Dense(classes)])
    made = nccl_tf.NCM(network, **kwargs)
    made.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    made.fit(inputs, labels, batch_size=batch_size, shuffle=False, verbose=0)
    return made


@pytest.mark.parametrize("batch_size", [1, 2, 6])
def test_means_and_scores_by_hand_in_any_batches(batch_size):
    made = fitted(X, Y, batch_size=batch_size)
    np.testing.assert_allclose(made.means.numpy(), MEANS, rtol=1e-12)
    assert made.counts.numpy().tolist() == [2, 3, 1]
    # (1, 0): 0.75 - 0.3125, 0.5 - 0.625, -1 - 0.625.
    np.testing.assert_allclose(made.predict(X[:1], verbose=0), [[0.4375, -0.125, -1.625]])


def test_the_nearest_mean_is_predicted():
    inputs, labels = many()
    made = fitted(inputs, labels)
    distances = np.linalg.norm(inputs[:, None] - made.means.numpy(), axis=-1)
    predicted = made.predict(inputs, verbose=0).argmax(1)
    np.testing.assert_array_equal(predicted, distances.argmin(1))


def test_cosines_by_hand():
    made = fitted(X, Y, ncm_distance="cosine")
    # (1, 0) against (3, 1), (1, 2) and (-2, 1).
    expected = [[3 / np.sqrt(10), 1 / np.sqrt(5), -2 / np.sqrt(5)]]
    np.testing.assert_allclose(made.predict(X[:1], verbose=0), expected, rtol=1e-6)
    assert np.isfinite(made.predict(0 * X, verbose=0)).all()
