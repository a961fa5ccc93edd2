"""Metrics of two classes on two logits, of rows for class numbers, and metrics that do not fit."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from sklearn.metrics import (
    f1_score,
    jaccard_score,
    log_loss,
    precision_score,
    recall_score,
    roc_auc_score,
)

import nccl_tf
from nccl_tf.errors import UserError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5)).astype("float32")
Y = (X[:, 0] + 0.5 * RNG.normal(size=60) > 0.8).astype("int32")
CLASSES = np.arange(60) % 4


def learner(outputs=2, end=None, **compile_arguments):
    network = keras.Sequential([keras.Input((5,)), keras.layers.Dense(outputs, end)])
    made = nccl_tf.Finetune(network, known_classes=range(outputs))
    made.compile(keras.optimizers.SGD(0.3), run_eagerly=True, **compile_arguments)
    return made


def probability(model):
    outputs = model.predict(X, verbose=0)
    e = np.exp(outputs - outputs.max(1, keepdims=True))
    ends_in_softmax = np.allclose(outputs.sum(1), 1)
    return outputs[:, 1] if ends_in_softmax else (e / e.sum(1, keepdims=True))[:, 1]


@pytest.mark.parametrize(
    "arguments", [{}, {"end": "softmax", "loss": "sparse_categorical_crossentropy"}]
)
def test_metrics_of_two_classes_judge_the_probability_of_class_one(arguments, tmp_path):
    metrics = [
        keras.metrics.AUC(num_thresholds=5000, name="area"),
        keras.metrics.Precision(thresholds=0.6, name="precision"),
        keras.metrics.Recall(name="recall"),
        "accuracy",
    ]
    model = learner(metrics=metrics, **arguments)
    model.fit(X, Y, verbose=0)
    model.save(tmp_path / "model.keras")
    p = probability(model)
    right = {
        "area": roc_auc_score(Y, p),
        "precision": precision_score(Y, p > 0.6),
        "recall": recall_score(Y, p > 0.5),
        "accuracy": np.mean((p > 0.5) == Y),
    }
    for each in (model, nccl_tf.load_model(tmp_path / "model.keras")):
        found = each.evaluate(X, Y, verbose=0, return_dict=True)
        assert {name: found[name] for name in right} == pytest.approx(right, abs=2e-3)


def test_an_area_from_logits_gets_logits():
    model = learner(metrics=[keras.metrics.AUC(5000, from_logits=True, name="area")])
    found = model.evaluate(X, Y, verbose=0, return_dict=True)
    assert found["area"] == pytest.approx(roc_auc_score(Y, probability(model)), abs=2e-3)


def test_a_score_of_class_numbers_is_that_of_scikit_learn():
    model = learner(4, metrics=[keras.metrics.F1Score("macro", name="f1")])
    model.fit(X, CLASSES, verbose=0)
    found = model.evaluate(X, CLASSES, verbose=0, return_dict=True)["f1"]
    guessed = model.predict(X, verbose=0).argmax(1)
    assert found == pytest.approx(f1_score(CLASSES, guessed, average="macro"), abs=1e-6)


def test_metrics_of_rows_get_class_numbers_as_rows():
    names = ["categorical_accuracy", "top_k_categorical_accuracy"]
    metrics = [
        keras.metrics.CategoricalAccuracy(name="share"),
        keras.metrics.TopKCategoricalAccuracy(2, name="of_two"),
        keras.metrics.CategoricalCrossentropy(from_logits=True, name="entropy"),
        keras.metrics.MeanMetricWrapper(keras.metrics.categorical_accuracy, name="wrapped"),
    ]
    model = learner(4, metrics=[*names, *metrics])
    model.fit(X, CLASSES, verbose=0)
    found = model.evaluate(X, CLASSES, verbose=0, return_dict=True)
    logits = model.predict(X, verbose=0)
    ranks = np.argsort(-logits, 1)
    share = np.mean(ranks[:, 0] == CLASSES)
    own = logits[np.arange(60), CLASSES]
    right = {
        "categorical_accuracy": share, "share": share, "wrapped": share,
        "top_k_categorical_accuracy": 1, "of_two": np.mean(ranks[:, :2] == CLASSES[:, None]) * 2,
        "entropy": np.mean(np.log(np.exp(logits).sum(1)) - own),
    }  # fmt: skip
    assert {name: found[name] for name in right} == pytest.approx(right, abs=1e-5)


def test_learn_takes_them_too():
    halves = np.arange(60) // 30
    stream = nccl_tf.stream_from_arrays((X, Y), (X, Y), domains=(halves, halves))
    model = learner()
    result = nccl_tf.learn(model, stream, metric=keras.metrics.AUC(5000), verbose=0)
    rows = halves == 1
    right = roc_auc_score(Y[rows], probability(model)[rows])
    assert result.matrix[1, 1] == pytest.approx(right, abs=2e-3)


LOGITS = keras.losses.BinaryCrossentropy(from_logits=True)


def one_logit_metrics():
    """Their values stand in `right_of`."""
    m = keras.metrics
    return [
        "accuracy", "binary_accuracy", "binary_crossentropy", "mse",
        m.AUC(5000, name="area"), m.AUC(5000, from_logits=True, name="area of logits"),
        m.Precision(name="precision"), m.Precision(0, name="precision of logits"),
        m.Recall(0.6, name="recall"), m.Recall([0.4, 0.6], name="two"),
        m.BinaryAccuracy(threshold=0.0, name="accuracy of logits"),
        m.MeanMetricWrapper(m.binary_accuracy, name="wrapped", threshold=0.6),
        m.BinaryCrossentropy(from_logits=True, name="entropy of logits"),
        m.F1Score("macro", threshold=0.6, name="f1"), m.BinaryIoU([1], 0.6, name="iou"),
        m.RootMeanSquaredError(name="rmse"),
    ]  # fmt: skip


def right_of(p, y):
    square = np.mean((p - y) ** 2)
    share, entropy, area = np.mean((p > 0.5) == y), log_loss(y, p), roc_auc_score(y, p)
    return {
        "accuracy": share, "binary_accuracy": share, "accuracy of logits": share,
        "binary_crossentropy": entropy, "entropy of logits": entropy, "mse": square,
        "area": area, "area of logits": area, "precision": precision_score(y, p > 0.5),
        "precision of logits": precision_score(y, p > 0.5), "recall": recall_score(y, p > 0.6),
        "two": [recall_score(y, p > 0.4), recall_score(y, p > 0.6)],
        "wrapped": np.mean((p > 0.6) == y), "f1": f1_score(y, p > 0.6),
        "iou": jaccard_score(y, p > 0.6), "rmse": np.sqrt(square),
    }  # fmt: skip


def test_of_one_logit_metrics_of_probabilities_get_them():
    model = learner(1, loss=LOGITS, metrics=one_logit_metrics())
    history = model.fit(X, Y, verbose=0, validation_data=(X, Y)).history
    p = 1 / (1 + np.exp(-model.predict(X, verbose=0)[:, 0].astype(float)))
    found = model.evaluate(X, Y, verbose=0, return_dict=True)
    for name, right in right_of(p, Y).items():
        assert found[name] == pytest.approx(right, abs=2e-3), name
        assert history[f"val_{name}"][-1] == pytest.approx(right, abs=2e-3), name


def test_tags_with_logits_are_judged_by_their_probabilities():
    tags = np.stack([Y, 1 - Y, X[:, 1] > 0], 1).astype("float32")
    metrics = [
        keras.metrics.AUC(5000, multi_label=True, num_labels=3, name="area"),
        keras.metrics.Precision(0.6, class_id=2, name="precision"),
        keras.metrics.F1Score("macro", threshold=0.6, name="f1"), "binary_accuracy",
    ]  # fmt: skip
    model = learner(3, loss=LOGITS, metrics=metrics)
    model.fit(X, tags, verbose=0)
    p = 1 / (1 + np.exp(-model.predict(X, verbose=0)))
    found = model.evaluate(X, tags, verbose=0, return_dict=True)
    right = {
        "area": roc_auc_score(tags, p, average="macro"),
        "precision": precision_score(tags[:, 2], p[:, 2] > 0.6),
        "f1": f1_score(tags, p > 0.6, average="macro", zero_division=0),
        "binary_accuracy": np.mean((p > 0.5) == tags),
    }
    assert {name: found[name] for name in right} == pytest.approx(right, abs=2e-3)


@pytest.mark.parametrize("one_hot", [False, True])
def test_of_several_logits_metrics_of_probabilities_get_a_softmax(one_hot):
    m = keras.metrics
    entropy = m.CategoricalCrossentropy if one_hot else m.SparseCategoricalCrossentropy
    metrics = [
        entropy(name="entropy"), entropy(from_logits=True, name="entropy of logits"),
        m.AUC(5000, multi_label=True, num_labels=4, name="area"),
        m.Precision(0.3, class_id=1, name="precision"), m.Recall(top_k=2, name="recall of two"),
        m.F1Score("macro", threshold=0.3, name="f1"), m.F1Score("macro", name="f1 of the first"),
    ]  # fmt: skip
    loss = keras.losses.CategoricalCrossentropy(from_logits=True) if one_hot else None
    model, rows = learner(4, loss=loss, metrics=metrics), np.eye(4)[CLASSES]
    targets = rows if one_hot else CLASSES
    model.fit(X, targets, verbose=0)
    logits = model.predict(X, verbose=0).astype(float)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = model.evaluate(X, targets, verbose=0, return_dict=True)
    of_two = np.mean([CLASSES[i] in np.argsort(-logits[i])[:2] for i in range(60)])
    right = {
        "entropy": log_loss(CLASSES, p), "entropy of logits": log_loss(CLASSES, p),
        "area": roc_auc_score(rows, p, average="macro"),
        "precision": precision_score(CLASSES == 1, p[:, 1] > 0.3), "recall of two": of_two,
        "f1": f1_score(rows, p > 0.3, average="macro", zero_division=0),
        "f1 of the first": f1_score(CLASSES, p.argmax(1), average="macro"),
    }  # fmt: skip
    assert {name: found[name] for name in right} == pytest.approx(right, abs=2e-3)


def test_a_metric_of_logits_is_refused_for_probabilities():
    area = keras.metrics.AUC(from_logits=True)
    with pytest.raises(UserError, match="give it from_logits=False"):
        learner(1, "sigmoid", loss="binary_crossentropy", metrics=[area])


DO_NOT_FIT = {
    "AUC of four": (lambda: learner(4, metrics=["AUC"]), CLASSES),
    "numbers": (
        lambda: learner(1, loss="mse", metrics=[keras.metrics.CategoricalAccuracy(), Raises()]),
        X[:, 0],
    ),
}  # fmt: skip


class Raises(keras.metrics.Metric):
    def update_state(self, y_true, y_pred, sample_weight=None):
        raise KeyError("whatever a metric raises")


VERBS = {
    "fit": lambda model, y: model.fit(X, y, verbose=0),
    "a data set": lambda model, y: model.fit(
        tf.data.Dataset.from_tensor_slices((X, y)).batch(10), verbose=0
    ),
    "evaluate": lambda model, y: model.evaluate(X, y, verbose=0),
    "train_on_batch": lambda model, y: model.train_on_batch(X, y),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", DO_NOT_FIT)
def test_one_that_does_not_fit_is_refused_before_anything_changes(name, verb):
    make, targets = DO_NOT_FIT[name]
    model = make()
    before = [v.numpy() for v in model.variables]
    with pytest.raises(UserError, match=r"does not fit targets of shape \[n\] and .* \[n, ") as e:
        VERBS[verb](model, targets)
    assert "function_node" not in str(e.value)
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy())


def test_a_metric_by_name_has_that_name_in_every_result():
    halves = np.arange(60) // 30
    stream = nccl_tf.stream_from_arrays((X, Y), (X, Y), domains=(halves, halves))
    results = [nccl_tf.learn(learner(), stream, metric="AUC", verbose=0) for _ in range(2)]
    assert [result.metric for result in results] == ["AUC", "AUC"]


def test_learn_refuses_it_before_it_trains():
    stream = nccl_tf.stream_from_arrays((X, CLASSES), (X, CLASSES), num_tasks=2)
    model = learner(4)
    with pytest.raises(UserError, match="does not fit"):
        nccl_tf.learn(model, stream, metric="AUC", verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 0


def test_the_trial_leaves_no_trace_in_a_metric():
    model = learner(metrics=["accuracy", "AUC"])
    first = model.evaluate(X, Y, verbose=0)
    assert model.evaluate(X, Y, verbose=0) == first


def test_a_head_that_has_grown_is_tried_again():
    model = learner(metrics=["AUC"])
    model.fit(X, Y, verbose=0)
    model.add_classes(1)
    with pytest.raises(UserError, match="does not fit"):
        model.fit(X, Y, verbose=0)
