"""What the loss leaves out, no metric counts: classes that it ignores and places of weight 0."""

import keras
import numpy as np
import pytest
from sklearn.metrics import f1_score, roc_auc_score

import nccl_tf
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task

RNG = np.random.default_rng(5)
TOKENS, LENGTH = 5, 4
TABLE = RNG.normal(size=(TOKENS, TOKENS)).astype("float32")
IDS, NEXT = RNG.integers(0, TOKENS, (2, 24, LENGTH))
LEFT_OUT = RNG.random(IDS.shape) < 0.4
LEFT_OUT[:2] = True  # whole examples


def entropies(right, logits):
    logits = logits.astype(float)
    return np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(right)), right]


def score(right, logits):
    found = logits.argmax(-1)
    return f1_score(right, found, labels=range(TOKENS), average="macro", zero_division=0)


def share_of_two(right, logits):
    return np.mean((np.argsort(-logits)[:, :2] == right[:, None]).any(1))


AT_PLACES = {
    "accuracy": lambda right, logits: np.mean(logits.argmax(-1) == right),
    "perplexity": lambda right, logits: np.exp(np.mean(entropies(right, logits))),
    "entropy": lambda right, logits: np.mean(entropies(right, logits)),
    "two": share_of_two,
    "f1": score,
}
"""The values of metrics by the targets and logits of the places that count."""


def made_metrics():
    return [
        "accuracy", "perplexity", keras.metrics.SparseCategoricalCrossentropy(name="entropy"),
        keras.metrics.SparseTopKCategoricalAccuracy(2, name="two"),
        keras.metrics.F1Score("macro", name="f1"),
    ]  # fmt: skip


def learner(ignored):
    """Logits of the next token from a table of the last one."""
    table = keras.layers.Embedding(TOKENS, TOKENS)
    network = keras.Sequential([keras.Input((LENGTH,), dtype="int32"), table])
    table.set_weights([TABLE])
    made = nccl_tf.Finetune(network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    made.compile(keras.optimizers.SGD(1e-9), loss, metrics=made_metrics())
    return made


@pytest.mark.parametrize("ignored", [0, pytest.param(-1, marks=pytest.mark.eager)])
def test_a_class_at_places_that_the_loss_ignores_is_in_no_metric(ignored):
    targets = np.where(LEFT_OUT, ignored, NEXT)
    counted = targets != ignored
    made = learner(ignored)
    found = made.evaluate(IDS, targets, batch_size=7, verbose=0, return_dict=True)
    history = made.fit(IDS, targets, batch_size=24, shuffle=False, verbose=0).history
    right = {n: of(NEXT[counted], TABLE[IDS][counted]) for n, of in AT_PLACES.items()}
    assert {name: found[name] for name in right} == pytest.approx(right, rel=1e-4)
    assert {name: history[name][-1] for name in right} == pytest.approx(right, rel=1e-4)


@pytest.mark.eager
@pytest.mark.parametrize("name", ["accuracy", "perplexity"])
def test_nor_in_the_matrix_of_learn(name):
    targets = np.where(LEFT_OUT, -1, NEXT)
    data = Examples(IDS.astype("int32"), targets)
    tasks = [Task(0, (), 10, lambda: data, lambda: data)]
    result = nccl_tf.learn(learner(-1), tasks, metric=name, verbose=0)
    right = AT_PLACES[name](NEXT[~LEFT_OUT], TABLE[IDS][~LEFT_OUT])
    assert result.initial[0] == pytest.approx(right, rel=1e-4)


def test_places_of_weight_0_are_in_no_metric():
    weights = np.where(LEFT_OUT, 0, RNG.integers(1, 3, IDS.shape))
    found = learner(None).evaluate(IDS, NEXT, sample_weight=weights, verbose=0, return_dict=True)
    rows = np.repeat(np.arange(IDS.size), weights.reshape(-1))
    right, logits = NEXT.reshape(-1)[rows], TABLE[IDS.reshape(-1)[rows]]
    for name, of in AT_PLACES.items():
        assert found[name] == pytest.approx(of(right, logits), rel=1e-4), name


@pytest.mark.parametrize("of_examples", [True, False])
def test_an_area_takes_each_place_as_an_example(of_examples):
    network = keras.Sequential([keras.Input((3, 2)), keras.layers.Dense(1)])
    made = nccl_tf.Finetune(network)
    area = keras.metrics.AUC(5000, name="area")
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1), loss, metrics=[area])
    x = RNG.normal(size=(3, 3, 2)).astype("float32")  # as many examples as places
    y = np.float32([[0, 1, 0], [1, 1, 0], [0, 0, 1]])
    counted = np.float32([[1, 1, 1], [1, 1, 1], [0, 0, 0]])
    logits = made.predict(x, verbose=0)[..., 0]
    weights = counted[:, 0] if of_examples else counted
    found = made.evaluate(x, y[..., None], sample_weight=weights, verbose=0)[1]
    assert found == pytest.approx(roc_auc_score(y[:2].ravel(), logits[:2].ravel()), abs=1e-3)


def of_vectors(ignored=0):
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    made = nccl_tf.Finetune(network, known_classes=range(4))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=ignored)
    made.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return made


@pytest.mark.parametrize("way", ["graphs", pytest.param("eager", marks=pytest.mark.eager)])
def test_examples_of_a_class_that_the_loss_ignores_are_in_no_accuracy(way):
    x = np.eye(4, dtype="float32")[np.arange(20) % 4]
    y = np.arange(20) // 4 % 4
    made = of_vectors()
    right = np.mean((made.predict(x, verbose=0).argmax(1) == y)[y != 0])
    assert made.accuracy(x, y) == pytest.approx(right)
    assert made.evaluate(x, y, verbose=0)[1] == pytest.approx(right)
    assert np.isnan(made.accuracy(x, np.zeros(20, int)))
    stream = nccl_tf.stream_from_arrays((x, y), (x, y), domains=(x[:, 0] > 0, x[:, 0] > 0))
    right = made.accuracy(stream[0])
    for metric in (None, keras.metrics.SparseCategoricalAccuracy()):
        again = of_vectors()
        again.set_weights(made.get_weights())
        result = nccl_tf.learn(again, stream, metric=metric, verbose=0)
        assert result.initial[0] == pytest.approx(right)


@pytest.mark.eager
def test_a_label_that_is_neither_ignored_nor_a_class_is_refused():
    x = np.zeros((8, 4), "float32")
    made = of_vectors(-1)
    made.fit(x, np.arange(8) % 5 - 1, verbose=0)  # -1 to 3
    for verb in (made.fit, made.evaluate):
        with pytest.raises(nccl_tf.UserError, match="received the label 4"):
            verb(x, np.arange(8) % 6 - 1, verbose=0)
