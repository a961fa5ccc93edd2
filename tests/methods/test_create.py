"""Learners by the name of their method, put together as the command does."""

import json

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_network
from nccl_tf.learner.options.dark_replay import DarkReplay
from nccl_tf.methods.create import create
from nccl_tf.methods.registry import METHODS

SIZE = 40
_KINDS = {(row.memory, row.takes_num_tasks): name for name, row in METHODS.items()}
NAMES = [
    pytest.param(name, marks=() if name in _KINDS.values() else pytest.mark.nightly)
    for name in METHODS
]


@pytest.fixture(scope="module")
def streams():
    return {
        head: nccl_tf.load_stream("split_digits", head=head, examples_per_task=20)
        for head in ("multi", "single")
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_method_is_that_of_the_command(name, streams):
    method = METHODS[name]
    head = "single" if method.unsupported_reason("split", "multi") else "multi"
    size = {"memory": SIZE} if method.memory else {}
    settings = resolve({
        "method": name, "dataset": "split_digits", "head": head, "tuning_tasks": 0,
        "hidden": None if "mlp_experts" in method.networks else (8,), **size,
    })  # fmt: skip
    network = build_network(settings, streams[head], 5)
    memory = SIZE if method.memory else None
    ours = create(name, network, streams[head], memory=memory, seed=5)
    ours.build_memory(ours.as_batch(next(iter(streams[head][0].train_batches(4)))))
    its = build_learner(settings, streams[head], 5)
    texts = []
    for config in (ours.get_config(), its.get_config()):
        config["network"] = config["name"] = None
        texts.append(json.dumps(config, sort_keys=True))
    assert texts[0] == texts[1]


def test_numbers_and_a_memory_of_one_s_own(streams):
    stream = streams["single"]
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    learner = create("er_reservoir", network, stream, 50, dark=0.5, reservoir="off_by_one")
    assert learner.option(DarkReplay).dark == 0.5
    assert (learner.memory.rule, learner.memory_batch_size) == ("off_by_one", 10)
    memory = nccl_tf.ReservoirMemory(7)
    assert create("er_reservoir", network, stream, memory).memory is memory
    for name, arguments, said in (
        ("er_reservoir", {}, "memory=500"),
        ("finetune", {"memory": 9}, "which keeps none"),
        ("er_ring", {"memory": 9}, "expected at least 10"),
        ("er_ring", {"memory": 10, "reservoir": "exact"}, "no such rule"),
        ("er_ring", {"memory": memory, "reservoir": "exact"}, "without the size"),
        ("stable_sgd", {"momentum": 0.5}, "the optimizer takes it"),
        ("er_ring", {"memory": 10, "darkness": 1}, "did you mean 'dark'"),
        ("derp", {"memory": 10}, "did you mean 'derpp'"),
    ):
        with pytest.raises(UserError, match=said):
            create(name, network, stream, **arguments)
    with pytest.raises(UserError, match="cannot learn"):
        create("er_ace", network, streams["multi"], memory=10)


X = np.random.default_rng(0).normal(size=(24, 6)).astype("float32")
NUMBERS = (X @ np.arange(6.0)).astype("float32")
PLACES = np.arange(24 * 6).reshape(24, 6) % 2


def table(outputs):
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(outputs)])


def at_each_place():
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Reshape((6, 1)), keras.layers.Dense(2)]
    )


CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy
TARGETS = {
    "numbers": (NUMBERS, lambda: table(1), lambda: "mse", ("float32", ())),
    "one logit": (
        np.arange(24) % 2, lambda: table(1),
        lambda: keras.losses.BinaryCrossentropy(from_logits=True), ("float32", ()),
    ),
    "classes": (np.arange(24) % 2, lambda: table(2), lambda: None, ("int64", ())),
    "a loss of one's own": (
        np.arange(24) % 2, lambda: table(1), lambda: lambda y, p: (y - p) ** 2, ("float32", ()),
    ),
    "places": (PLACES, at_each_place, lambda: CROSS_ENTROPY(from_logits=True), ("int64", (6,))),
}  # fmt: skip


@pytest.mark.parametrize("kind", TARGETS)
def test_a_memory_has_the_form_of_the_targets_that_the_loss_takes(kind):
    targets, network, loss, (dtype, shape) = TARGETS[kind]
    examples = X, targets
    halves = np.arange(24) // 12
    stream = nccl_tf.stream_from_arrays(examples, examples, domains=(halves, halves))
    network = network()
    for name in ("er_reservoir", *(["derpp"] if kind == "one logit" else [])):
        learner = create(name, network, stream, memory=100, memory_batch_size=4)
        learner.compile(keras.optimizers.SGD(0.01), loss=loss(), run_eagerly=True)
        for task in stream:
            learner.fit(task, batch_size=4, verbose=0)
        stored = learner.memory.read_all()
        assert (stored.labels.dtype, stored.labels.shape) == (dtype, (24, *shape))
        order = np.lexsort(stored.inputs.T), np.lexsort(X.T)
        np.testing.assert_array_equal(stored.inputs[order[0]], X[order[1]])
        np.testing.assert_allclose(stored.labels[order[0]], targets[order[1]], rtol=1e-6)


def test_a_memory_by_class_is_refused_where_targets_are_numbers():
    examples = X, NUMBERS
    halves = np.arange(24) // 12
    stream = nccl_tf.stream_from_arrays(examples, examples, domains=(halves, halves))
    with pytest.raises(UserError, match="such as er_reservoir"):
        create("er_ring", table(1), stream, memory=100)


@pytest.mark.parametrize(
    ("name", "dropout", "told"),
    [
        ("stable_sgd", 0, ["SGD(0.1, momentum=0.8)", "dropout 0.25"]),
        ("stable_sgd", 0.25, ["SGD(0.1, momentum=0.8)"]),
        ("stable_agem", 0, ["dropout 0.25"]),
        ("stable_agem", 0.25, []),
        ("gdumb", 0, ["SGD(0.05, momentum=0.9, weight_decay=1e-06)"]),
        ("agem", 0, []),
    ],
)
def test_parts_of_a_recipe_that_the_learner_does_not_take_are_told(caplog, name, dropout, told):
    stream = nccl_tf.load_stream("permuted_digits", max_tasks=2)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, dropout=dropout)
    create(name, network, stream, memory=40 if METHODS[name].memory else None)
    (said,) = [record.getMessage() for record in caplog.records] or [""]
    assert all(text in said for text in told) and bool(said) == bool(told)
    assert len(said.split(" and ")) == max(len(told), 1) + bool(told)


def test_what_supsup_needs_of_the_network_is_told(caplog):
    """By the command it has outputs beyond the classes; without them it was below fine-tuning."""
    stream = nccl_tf.load_stream("permuted_digits", max_tasks=2)
    for outputs in (stream.num_classes, stream.num_classes + 100):
        create("supsup", nccl_tf.networks.mlp(stream.example_shape, outputs), stream)
        create("finetune", nccl_tf.networks.mlp(stream.example_shape, outputs), stream)
    (told,) = [record.getMessage() for record in caplog.records if "outputs" in record.getMessage()]
    assert "supsup" in told and "num_classes=110" in told and "rate 1" in told
