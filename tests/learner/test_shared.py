"""Two learners around one network: it is said, and none goes on when another has grown it."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError

X, LABELS = np.random.default_rng(0).normal(size=(12, 5)).astype("float32"), np.arange(12) % 3


def network(trains=True) -> keras.Model:
    hidden = keras.layers.Dense(4, trainable=trains)
    return keras.Sequential([keras.Input((5,)), hidden, keras.layers.Dense(3)])


def compiled(network, learner_class=nccl_tf.Finetune, **arguments):
    learner = learner_class(network, known_classes=[0, 1, 2], **arguments)
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    return learner


def around_the_same_layers(network) -> keras.Model:
    return keras.Model(network.inputs, network.outputs[0])


@pytest.mark.parametrize("same", [lambda network: network, around_the_same_layers])
def test_it_is_said_once_when_the_second_is_made(same, caplog):
    one = network()
    replay = compiled(one, nccl_tf.ExperienceReplay, memory=nccl_tf.ReservoirMemory(8))
    replay.compile(keras.optimizers.SGD(0.2))
    assert not caplog.records
    second = nccl_tf.Finetune(same(one))
    assert [record.getMessage()[:81] for record in caplog.records] == [
        "the network of this Finetune is that of another learner, ExperienceReplay: each g"
    ]
    second.compile(keras.optimizers.SGD(0.1))
    assert len(caplog.records) == 1


def test_it_is_said_when_both_were_made_before_one_is_compiled(caplog):
    one = network()
    learners = [nccl_tf.Finetune(one) for _ in range(2)]
    assert not caplog.records  # a learner that is never compiled trains nothing
    for learner in learners:
        learner.compile(keras.optimizers.SGD(0.1))
    assert len(caplog.records) == 1


def test_layers_that_are_not_trained_may_be_shared(caplog):
    one = network(trains=False)
    compiled(one)
    other = keras.Model(one.inputs, keras.layers.Dense(3)(one.layers[0].output))
    compiled(other)
    compiled(network())
    assert not caplog.records


VERBS = {
    "fit": lambda learner: learner.fit(X, LABELS, verbose=0),
    "train_on_batch": lambda learner: learner.train_on_batch(X, LABELS),
    "evaluate": lambda learner: learner.evaluate(X, LABELS, verbose=0),
    "predict": lambda learner: learner.predict(X, verbose=0),
    "predict_on_batch": lambda learner: learner.predict_on_batch(X),
    "accuracy": lambda learner: learner.accuracy(X, LABELS),
    "call": lambda learner: learner(X),
    "compile": lambda learner: learner.compile("sgd"),
    "add_classes": lambda learner: learner.add_classes(1),
    "serving_model": lambda learner: learner.serving_model(),
    "remember": lambda learner: learner.remember(X, LABELS),
}


@pytest.fixture(scope="module")
def behind():
    """A learner whose network another one has let grow, and that one."""
    one = network()
    grows, other = (
        compiled(each, nccl_tf.ExperienceReplay, memory=nccl_tf.ReservoirMemory(8))
        for each in (one, around_the_same_layers(one))
    )
    other.predict(X, verbose=0)
    grows.add_classes(1)
    return other, grows


@pytest.mark.parametrize("verb", VERBS)
def test_a_learner_whose_network_has_grown_is_refused(behind, verb):
    with pytest.raises(UserError, match="of 3 classes whose network has grown since"):
        VERBS[verb](behind[0])


def test_it_is_not_saved_and_the_one_that_grew_goes_on(behind, tmp_path):
    other, grows = behind
    with pytest.raises(UserError, match="whose network has grown since"):
        other.save(tmp_path / "learner.keras")
    grows.add_classes(1)
    grows.fit(X, LABELS + 1, verbose=0)
    np.testing.assert_allclose(grows.predict(X, verbose=0)[:, 3], grows.network(X)[:, 3], 1e-6)
