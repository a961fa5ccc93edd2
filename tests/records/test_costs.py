"""Rows that pass through a network, by the formulas and as counted in a step run eagerly."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.learner.stored import bytes_stored
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.costs import STATISTICS, Work, bytes_by_settings, rows_passed
from nccl_tf.records.options import Options
from tests.methods.learners import RATES, build
from tests.tiny import tiny_batches

COUNT, BATCH, DRAW = 15, 5, 4
FEWER = {
    "gdumb": {"passes": 2}, "mc_sgd": {"line_steps": 2, "line_points": 3, "line_examples": 20},
    "lpr": {"lpr_every": 2}, "mir": {"candidates": 6}, "mir_gmed": {"candidates": 6},
    "bgd": {"bgd_samples": 3}, "online_ewc": {"importance_examples": 8},
    "mas": {"importance_examples": 8},
}  # fmt: skip
BY_DATA = ("gss_greedy", "icarl", "cn_dpm")
COUNTED = [name for name, row in METHODS.items() if name not in (*BY_DATA, "supsup")]
"""The kernels of SupSup are masked apart from the layers that the test counts at."""


def counted(learner) -> list[int]:
    """The rows of each pass through the first dense layer, from now on."""
    rows: list[int] = []
    layer = next(each for each in learner.network.layers if isinstance(each, keras.layers.Dense))
    call = layer.call

    def counting(inputs, *args, **kwargs):
        rows.append(int(inputs.shape[0]))
        return call(inputs, *args, **kwargs)

    layer.call = counting
    return rows


def work_of(learner, name, tasks):
    row, memory = METHODS[name], learner.memory
    numbers = {each.name: getattr(learner, each.name, None) for each in row.hyperparameters}
    draw = learner.memory_batch_size if row.memory_batch and row.memory else 0
    steps = [COUNT // BATCH] * tasks
    return Work(row, steps, BATCH, draw, memory.capacity if memory else 0, COUNT, numbers)


@pytest.fixture
def eagerly():
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.seconds(30)  # a step run eagerly
@pytest.mark.parametrize("name", COUNTED)
def test_formulas_count_what_passes(name, eagerly):
    given = FEWER.get(name, {})
    takes = inspect.signature(METHODS[name].learner_class()).parameters
    # By rows, two gradients take one pass by their own products.
    given = given | ({"gradients": "two_tapes"} if "gradients" in takes else {})
    learner = build(name, **given)
    learner.compile(keras.optimizers.SGD(RATES.get(name, 0.1)), run_eagerly=True)
    rows = counted(learner)
    for task in range(2):
        learner.fit(tiny_batches(task, COUNT, BATCH), task_id=task, verbose=0)
    assert sum(rows) == rows_passed(work_of(learner, name, 2))


@pytest.mark.parametrize("name", BY_DATA)
def test_what_depends_on_the_data_is_not_told(name):
    assert rows_passed(Work(METHODS[name], [3, 3], 5, 4, 12, 15, {})) is None


NO_FORMULA = ("cn_dpm", "icarl", "lpr", "ncm", "ranpac", "slda")
FLAGS = [
    *({"method": name} for name in METHODS if name not in NO_FORMULA),
    {"method": "derpp", "average_weights": 0.9}, {"method": "er_reservoir", "dark": 0.5},
    {"method": "lwf", "dataset": "split_digits", "head": "multi"},
    {"method": "er_ring", "dataset": "split_digits", "head": "single"},
]  # fmt: skip


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "-".join(map(str, flags.values())))
def test_settings_tell_the_bytes_that_a_learner_keeps(flags):
    dataset = "split_digits" if flags["method"] in ("gdumb",) else "permuted_digits"
    settings = resolve({"dataset": dataset, "max_tasks": 2, "hidden": [8, 16], **flags})
    learner = build_learner(settings, build_stream(settings, Options(), seed=0), seed=0)
    weights = sum(int(np.prod(v.shape)) for v in learner.network.trainable_variables)
    assert bytes_by_settings(settings, weights) == bytes_stored(learner)


@pytest.mark.parametrize("name", NO_FORMULA)
def test_settings_do_not_tell_what_depends_on_layers(name):
    settings = dataclasses.replace(resolve({"dataset": "permuted_digits"}), method=name)
    assert bytes_by_settings(settings, 100) is None


@pytest.mark.parametrize("name", ["resnet18_reduced", "resnet18", "resnet18_one_conv"])
def test_the_statistics_of_a_network_are_those_that_it_has(name):
    network = getattr(nccl_tf.networks, name)((32, 32, 3), 10)
    assert sum(int(np.prod(v.shape)) for v in network.non_trainable_variables) == STATISTICS[name]
