"""Every method on texts, or on numbers to predict where it has a meaning for them."""

import keras
import numpy as np
import pytest

from nccl_tf.learner.columns import extras_of
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import head
from tests.methods.test_battery import CLASSES, grouped

RNG = np.random.default_rng(0)
COUNT, WORDS, LENGTH = 40, 20, 4
LABELS = RNG.integers(0, 2, COUNT)
TOKENS = 2 * RNG.integers(0, WORDS // 2, (COUNT, LENGTH)) + LABELS[:, None]
TABLE = RNG.normal(size=(COUNT, 3))
TARGETS = TABLE @ [[1.0], [2.0], [-1.0]]

OWN_NETWORK = ("cn_dpm", "supsup")  # experts; masks on dense layers and convolutions
ONE_PER_CODE_PATH = ("ewc", "gem")


def regresses(name: str) -> bool:
    row, learner = METHODS[name], METHODS[name].learner_class()
    by_class = row.memory and get_memory(row.memory).memory_class().by_class
    masks = row.options.get("stream_mask", "all") != "all"
    return not (by_class or masks or learner.why_not("loss") or learner.why_not("targets"))


def build(name: str, network: keras.Model) -> keras.Model:
    row, arguments = METHODS[name], {}
    if row.memory:
        extras = extras_of(row.learner_class().columns, network.output_shape[-1])
        arguments["memory"] = get_memory(row.memory).build(
            capacity=8, slots=2 if row.memory == "ring" else None, rule="exact", seed=1,
            task_classes=((0, 1),), example_shape=None, **({"extras": extras} if extras else {}),
        )  # fmt: skip
    if row.takes_num_tasks:
        arguments["num_tasks"] = 1
    if name == "cumulative":
        arguments["joined"] = True  # The data of a `fit` are all so far.
    return row.learner_class()(network, **arguments)


def a_regression(name: str):
    learner = build(name, keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]))
    learner.compile(keras.optimizers.SGD(0.01), loss="mse", metrics=["mae"], run_eagerly=True)
    return learner, (TABLE, TARGETS)


def a_text(name: str):
    layers = [
        keras.Input((LENGTH,), dtype="int32"), keras.layers.Embedding(WORDS, 3),
        keras.layers.Flatten(), keras.layers.Dense(4, "relu"), keras.layers.Dense(2),
    ]  # fmt: skip
    learner = build(name, keras.Sequential(layers))
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], run_eagerly=True)
    return learner, (TOKENS, LABELS)


@pytest.mark.parametrize(
    "name",
    [
        grouped(name, *([] if name in ONE_PER_CODE_PATH else [pytest.mark.nightly]))
        for name in CLASSES
        if name not in OWN_NETWORK
    ],
)
def test_learns_texts_or_numbers(name):
    learner, data = a_regression(name) if regresses(name) else a_text(name)
    before = head(learner)
    losses = learner.fit(*data, batch_size=5, verbose=0).history["loss"]
    assert np.isfinite(losses).all() and int(learner.progress.skipped.numpy()) == 0
    after = head(learner)
    assert any((a != b).any() for a, b in zip(before, after, strict=True))
    assert np.isfinite(learner.evaluate(*data, verbose=0)).all()
    assert learner.predict(data[0], verbose=0).shape == (COUNT, learner.num_classes)
