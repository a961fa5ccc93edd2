"""What evaluation judges: a hidden class is no hit, and NaN is wrong, which is told once."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.streams.arrays import Examples

PREDICTED = np.arange(10) % 5
"""The class of each input, by the networks here."""
X = np.eye(10, dtype="float32")[PREDICTED] + np.linspace(0, 0.5, 10, dtype="float32")
TOP = keras.metrics.SparseTopKCategoricalAccuracy


def network(relu: bool = False, end: str | None = None) -> keras.Model:
    """Ten classes: the logits of an example are its ten inputs."""
    layers = [keras.layers.Dense(10, "relu", kernel_initializer="identity")] if relu else []
    last = keras.layers.Dense(10, end, kernel_initializer="identity")
    return keras.Sequential([keras.Input((10,)), *layers, last])


def learner(made=None, metrics=(), loss=None, **arguments) -> nccl_tf.Finetune:
    model = nccl_tf.Finetune(made or network(), **arguments)
    model.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=list(metrics))
    return model


def told(caplog) -> list[str]:
    return [record.message for record in caplog.records if record.name == "nccl_tf"]


def with_nan(*rows: int) -> np.ndarray:
    x = X.copy()
    x[list(rows), 9] = np.nan
    return x


@pytest.mark.parametrize(("end", "loss"), [("softmax", "sparse_categorical_crossentropy")])
def test_a_class_that_is_hidden_is_no_hit_of_a_top_k_metric(end, loss):
    top = [TOP(k=k, name=f"top{k}") for k in (2, 5, 9)]
    model = learner(network(end=end), top, loss, known_classes=[0, 1, 2])
    logs = model.evaluate(X, 5 + PREDICTED, verbose=0, return_dict=True)
    assert [logs[f"top{k}"] for k in (2, 5, 9)] == [0, 0, 0]
    # Of the classes 0 to 2 each is among the first three; 3 and 4 are hidden.
    logs = model.evaluate(X, PREDICTED, verbose=0, return_dict=True)
    np.testing.assert_allclose([logs["top5"], logs["top9"]], 0.6)


def test_an_example_with_nan_is_wrong_and_told_once(caplog):
    """A relu makes 0 of NaN, after which the outputs are finite."""
    model = learner(network(relu=True), ["accuracy", TOP(k=5, name="top")])
    x = with_nan(0, 3, 5, 8)  # of the classes 0 and 3
    assert model.accuracy(X, PREDICTED) == 1 and not told(caplog)
    assert model.accuracy(x, PREDICTED) == 0.6
    (said,) = told(caplog)
    assert said.startswith("4 of the evaluated examples have NaN")
    logs = model.evaluate(x, PREDICTED, batch_size=3, verbose=0, return_dict=True)
    np.testing.assert_allclose([logs["accuracy"], logs["top"]], 0.6)
    assert np.isnan(logs["loss"]) and len(told(caplog)) == 1


def test_the_matrix_of_learn_counts_nan_as_wrong(caplog):
    y = PREDICTED % 2
    test = with_nan(*np.flatnonzero(y == 0)), y
    stream = nccl_tf.stream_from_arrays((X, y), (X, y), num_tasks=1)
    # A stream refuses NaN; a generator of examples of one's own may deliver it.
    stream[0]._test = lambda: Examples(*test)
    result = nccl_tf.learn(learner(), stream, metric=TOP(k=5), verbose=0)
    assert result.matrix[0, 0] <= np.mean(y == 1) + 1e-6
    assert len(told(caplog)) == 1


def test_padding_with_nan_is_not_told_of(caplog):
    model = learner(metrics=["accuracy"])
    weights = np.ones(10, "float32")
    weights[3] = 0
    logs = model.evaluate(with_nan(3), PREDICTED, sample_weight=weights, verbose=0)
    assert logs[1] == 1 and not told(caplog)


def test_binary_outputs_that_are_nan_are_wrong():
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model = learner(network(), ["accuracy"], loss)
    x = X * 0 - 1  # each output says no
    x[:5] = np.nan
    assert model.evaluate(x, np.zeros((10, 10)), verbose=0)[1] == 0.5
    assert model.evaluate(x, np.ones((10, 10)), verbose=0)[1] == 0
