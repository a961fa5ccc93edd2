"""Rows that pass through a network, by the formulas and as counted in a step run eagerly."""

import inspect

import keras
import pytest
import tensorflow as tf

from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.row import Work
from nccl_tf.records.costs import rows_passed
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
    slots = memory.capacity if memory else 0
    return Work(steps, BATCH, draw, row.memory, slots, [COUNT] * tasks, numbers)


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
    assert sum(rows) == rows_passed(METHODS[name], work_of(learner, name, 2))


@pytest.mark.parametrize("name", BY_DATA)
def test_what_depends_on_the_data_is_not_told(name):
    row = METHODS[name]
    assert rows_passed(row, Work([3, 3], 5, 4, row.memory, 12, [15, 15], {})) is None
