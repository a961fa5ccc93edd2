"""Perplexity by corpus: its values, its direction, and KerasHub's metric."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.streams.arrays import Examples
from nccl_tf.streams.task import Task
from tests.learner.hub import keras_hub

RNG = np.random.default_rng(3)
TOKENS, LENGTH = 6, 4
TABLE = RNG.normal(size=(TOKENS, TOKENS)).astype("float32")
IDS, NEXT = RNG.integers(0, TOKENS, (2, 20, LENGTH))
HALVES = np.arange(20) // 10


def learner():
    """Logits of the next token from a table of the last one."""
    table = keras.layers.Embedding(TOKENS, TOKENS)
    network = keras.Sequential([keras.Input((LENGTH,), dtype="int32"), table])
    table.set_weights([TABLE])
    made = nccl_tf.Finetune(network)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.5), loss, metrics=["perplexity"])
    return made


def expected(table, ids, following, weights=None):
    logs = table[ids] - np.log(np.exp(table[ids]).sum(-1, keepdims=True))
    losses = -np.take_along_axis(logs, following[..., None], -1)[..., 0]
    return np.exp(np.average(losses, weights=weights))


def stream():
    def task(number):
        data = Examples(IDS[number == HALVES].astype("int32"), NEXT[number == HALVES])
        return Task(number, (), 10, lambda: data, lambda: data)

    return [task(0), task(1)]


@pytest.mark.parametrize("hub", [False, True])
def test_the_matrix_has_the_perplexity_of_each_corpus_and_less_is_better(hub):
    metric = keras_hub().metrics.Perplexity(from_logits=True) if hub else "perplexity"
    made = learner()
    result = nccl_tf.learn(made, stream(), batch_size=5, epochs=3, metric=metric, verbose=0)
    assert (result.metric, result.higher_is_better) == ("perplexity", False)
    table = made.network.get_weights()[0]
    for task in range(2):
        rows = task == HALVES
        before, after = (expected(w, IDS[rows], NEXT[rows]) for w in (TABLE, table))
        assert result.initial[task] == pytest.approx(before, rel=1e-4)
        assert result.matrix[1, task] == pytest.approx(after, rel=1e-4)
    # Learning lowers it, and what rises again of the first corpus is forgotten.
    assert result.matrix[1, 1] < result.initial[1]
    rise = result.matrix[1, 0] - result.matrix[0, 0]
    assert result.forgetting == pytest.approx(rise, rel=1e-6)


def test_weights_of_places_are_those_of_the_mean():
    weights = RNG.integers(0, 3, IDS.shape).astype("float32")
    found = learner().evaluate(IDS, NEXT, sample_weight=weights, verbose=0, return_dict=True)
    assert found["perplexity"] == pytest.approx(expected(TABLE, IDS, NEXT, weights), rel=1e-4)
    metric = nccl_tf.Perplexity()
    metric.update_state(NEXT, TABLE[IDS], np.arange(20) % 2)
    odd = np.arange(20) % 2 == 1
    assert float(metric.result()) == pytest.approx(expected(TABLE, IDS[odd], NEXT[odd]), rel=1e-4)
    metric.reset_state()
    assert np.isnan(float(metric.result()))
    outputs = np.where(odd[:, None, None], TABLE[IDS], np.nan)  # of padding, whatever it gives
    metric.update_state(NEXT, outputs, odd.astype("float32"))
    assert float(metric.result()) == pytest.approx(expected(TABLE, IDS[odd], NEXT[odd]), rel=1e-4)


def test_it_is_loaded_with_its_learner(tmp_path):
    made = learner()
    made.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    values = [m.evaluate(IDS, NEXT, verbose=0, return_dict=True) for m in (made, loaded)]
    assert values[0] == values[1]
    again = nccl_tf.Perplexity.from_config(nccl_tf.Perplexity(from_logits=False).get_config())
    assert again.from_logits is False


def test_a_metric_of_probabilities_is_refused_for_logits():
    with pytest.raises(UserError, match="give it from_logits=True"):
        nccl_tf.learn(learner(), stream(), metric=nccl_tf.Perplexity(from_logits=False))
    numbers = nccl_tf.Finetune(keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
    with pytest.raises(UserError, match="perplexity"):
        numbers.compile("sgd", "mse", metrics=["perplexity"])
