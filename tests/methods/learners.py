"""A learner of every method on the two tiny tasks, and what the tests ask of one."""

from typing import Any

import keras
import numpy as np

import nccl_tf
from nccl_tf.learner.columns import extras_of, with_logits
from nccl_tf.learner.features import FeatureLearner
from nccl_tf.learner.learner import Learner
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import METHODS
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_experts, tiny_network

PLACES = 5
MORE_STEPS = {"cn_dpm": {"vae_steps": 60, "classifier_steps": 60}}
"""Than in a trial of `check_learner`: of learners that are to learn something."""
HIDDEN = {"supsup": 64}  # units, in place of 8, which two superposed masks would share
RATES = {"bgd": 10.0, "cn_dpm": 0.02, "ewc": 0.05, "supsup": 1.0}


def trial_of(name: str) -> dict[str, Any]:
    """Arguments with which the class of a row learns the tiny tasks."""
    numbers = {k: v for k, v in METHODS[name].trial.items() if k != "num_tasks"}
    return numbers | MORE_STEPS.get(name, {})


def network_of(name: str, dtype="float32", input_dtype="uint8") -> keras.Model:
    if "mlp_experts" in METHODS[name].networks:
        return tiny_experts(dtype=dtype)
    input_dtype = "float32" if "edited" in (METHODS[name].memory or "") else input_dtype
    return tiny_network(dtype=dtype, input_dtype=input_dtype, hidden=HIDDEN.get(name, 8))


def build(
    name: str, /, heads=None, dtype="float32", network=None, input_dtype="uint8", **arguments
) -> Learner:
    """A learner of a row of the registry, with the defaults of its class."""
    row = METHODS[name]
    arguments = {"heads": heads, "seed": 3} | trial_of(name) | arguments
    if row.memory and "memory" not in arguments:
        extras = extras_of(with_logits(row.learner_class().columns, arguments.get("dark", 0.0)), 4)
        arguments["memory"] = get_memory(row.memory).build(
            capacity=12, slots=2 if row.memory == "ring" else None, rule="exact", seed=3,
            task_classes=TASK_CLASSES, example_shape=IMAGE_SHAPE,
            **({} if input_dtype == "uint8" else {"example_dtype": input_dtype}),
            **({"extras": extras} if extras else {}),
        )  # fmt: skip
    if row.memory and row.memory_batch:
        arguments["memory_batch_size"] = 4
    if row.takes_num_tasks:
        arguments["num_tasks"] = len(TASK_CLASSES)
    return row.learner_class()(network or network_of(name, dtype, input_dtype), **arguments)


def make(name: str, heads=None, dtype="float32", options=None, **compile_arguments) -> Learner:
    """`build`, compiled with a rate at which the method learns the tasks."""
    learner = build(name, heads, dtype, **(options or {}))
    rate = RATES.get(name, 0.25)
    learner.compile(keras.optimizers.SGD(rate), metrics=["accuracy"], **compile_arguments)
    return learner


def make_at_places(name: str) -> Learner:
    """A learner of sequences, with a class at each place, as far as the method takes them."""
    row = METHODS[name]
    keras.utils.set_random_seed(0)
    network = keras.Sequential([
        keras.Input((PLACES,), dtype="int32"), keras.layers.Embedding(8, 6), keras.layers.Dense(4)
    ])  # fmt: skip
    arguments = {"seed": 3} | trial_of(name)
    if row.memory:
        wanted = row.learner_class().memory_class
        is_enough = issubclass(nccl_tf.ReservoirMemory, wanted)
        arguments["memory"] = (nccl_tf.ReservoirMemory if is_enough else wanted)(12)
    if row.memory and row.memory_batch:
        arguments["memory_batch_size"] = 4
    if row.takes_num_tasks:
        arguments["num_tasks"] = 2
    learner = row.learner_class()(network, **arguments)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    learner.compile(keras.optimizers.SGD(RATES.get(name, 0.25)), loss, metrics=["accuracy"])
    return learner


def fit_at_places(learner, task: int, count=100, **kwargs):
    """Learn a class for each token, of a task's two; the last place has no part in it."""
    tokens = np.random.default_rng(task).integers(0, 8, (count, PLACES))
    labels, weights = tokens % 2 + 2 * task, np.ones((count, PLACES))
    labels[:, -1], weights[:, -1] = -9, 0
    kwargs = {"sample_weight": weights, "batch_size": 5, "verbose": 0, "shuffle": False} | kwargs
    return learner.fit(tokens, labels, **kwargs).history


def fit(learner, *tasks, count=200, **kwargs):
    for task in tasks:
        history = learner.fit(tiny_batches(task, count), task_id=task, verbose=0, **kwargs)
    return history.history


def head(learner) -> list[np.ndarray]:
    """What is trained of the last layer: its weights, the scores of supsup's masks on them, or the
    means or sums of classes that methods of frozen features have in their place."""
    for statistic in ("means", "sums", "class_sums"):
        if isinstance(learner, FeatureLearner) and hasattr(learner, statistic):
            return [getattr(learner, statistic).numpy().T]
    if hasattr(learner, "scores"):
        return [learner.scores[-1].numpy()]
    return learner.network.layers[-1].get_weights()


def values(learner) -> list[np.ndarray]:
    """Every variable but the optimizer's, with those of memories."""
    of_memories = [v for memory in learner.memories() for v in memory.variables]
    return [variable.numpy() for variable in (*learner.variables, *of_memories)]


def assert_same_values(one: list[np.ndarray], other: list[np.ndarray]):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


def assert_same_state(one, other):
    assert_same_values(values(one), values(other))
