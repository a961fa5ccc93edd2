"""Replay that is read before the first of many steps, against replay in every step."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from nccl_tf import AGEM, MEGAI, MEGAII, NCCL, ExperienceReplay, ReservoirMemory, RingMemory, Task
from nccl_tf.batch import BatchStack
from nccl_tf.callbacks import ForgettingDiagnostics
from nccl_tf.streams.arrays import Examples
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

STEPS, ROWS, PER_CALL = 9, 5, 4


def chunk(task: int, broken: int | None = None):
    """A task's batches in one stack, the last one padded; those of one may have NaN pixels."""
    random = np.random.default_rng(task)
    images = random.normal(size=(STEPS, ROWS, *IMAGE_SHAPE)).astype(np.float32)
    if broken is not None:
        images[broken, 0] = np.nan
    labels = random.choice(TASK_CLASSES[task], (STEPS, ROWS)).astype(np.int32)
    weights = np.ones((STEPS, ROWS), np.float32)
    weights[-1, 2:] = 0
    return {"inputs": images, "task": np.full((STEPS, ROWS), task, np.int32)}, labels, weights


def batches(task: int, broken: int | None = None) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(chunk(task, broken))


def stack(task: int) -> BatchStack:
    return BatchStack(chunk(task), tf.fill([STEPS], ROWS))


METHODS = {
    "er": (ExperienceReplay, {}),
    "er, a sum": (ExperienceReplay, {"er_weighting": "sum_of_means"}),
    "nccl": (NCCL, {}),
    "nccl, two tapes": (NCCL, {"gradients": "two_tapes"}),
    "agem": (AGEM, {}),
    "mega1": (MEGAI, {}),
    "mega2": (MEGAII, {}),
}


MEMORIES = {
    "ring": lambda: RingMemory(2, TASK_CLASSES, IMAGE_SHAPE, "float32", seed=3),
    "reservoir": lambda: ReservoirMemory(9, IMAGE_SHAPE, "float32", seed=3),
    "reservoir, off by one": lambda: ReservoirMemory(
        30, IMAGE_SHAPE, "float32", rule="off_by_one", seed=3
    ),
}


def made(method, memory=None, jit_compile=False, **arguments):
    memory = memory or MEMORIES["ring"]()
    learner = method(tiny_network(input_dtype="float32"), memory, memory_batch_size=4, **arguments)
    learner.compile(
        keras.optimizers.SGD(0.1), steps_per_execution=PER_CALL, jit_compile=jit_compile
    )
    learner.record_steps(2)
    return learner


def in_turn(method):
    """The method, reading and writing its memory in every step."""
    return type("InTurn", (method,), {"fast_paths": ("deferred_logs", "dense")})


def learned(learner, *tasks, broken=None):
    for task in tasks:
        learner.fit(batches(task, broken), task_id=task, verbose=0)
    return [v.numpy() for v in learner.state_variables().values()]


def assert_equal(one, other):
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


USUAL = {
    ("nccl", "ring", 1, True), ("nccl", "reservoir", 4, False),
    ("er", "reservoir, off by one", 1, True),
}  # fmt: skip
"""Method, memory, broken batch and heads that are tried every time; the others are slow."""


def cases():
    for case in itertools.product(METHODS, MEMORIES, (None, 0, 1, 4), (False, True)):
        yield pytest.param(*case, marks=[] if case in USUAL else pytest.mark.slow)


@pytest.mark.usefixtures("optimized_graphs")
@pytest.mark.parametrize(("name", "memory", "broken", "multi"), list(cases()))
def test_prefetching_changes_no_bit(name, memory, broken, multi):
    method, arguments = METHODS[name]
    arguments = {"heads": TASK_CLASSES if multi else None, **arguments}
    ahead = made(method, MEMORIES[memory](), **arguments)
    other = made(in_turn(method), MEMORIES[memory](), **arguments)
    ahead.begin_task(0)
    assert ahead.can_prefetch_replay(stack(0)) and not other.can_prefetch_replay(stack(0))
    assert_equal(learned(ahead, 0, 1, broken=broken), learned(other, 0, 1, broken=broken))
    assert int(ahead.skipped) == (0 if broken is None else 2)
    assert ahead.traces == other.traces == 1


@pytest.mark.slow
@pytest.mark.usefixtures("optimized_graphs")
@pytest.mark.parametrize("memory", ["ring", "reservoir"])
def test_prefetching_changes_no_bit_under_xla(memory):
    ahead, other = (
        made(method, MEMORIES[memory](), jit_compile=True)
        for method in (ExperienceReplay, in_turn(ExperienceReplay))
    )
    assert_equal(learned(ahead, 0, 1, broken=1), learned(other, 0, 1, broken=1))


def test_a_task_that_has_ended_and_comes_again_is_read_while_it_is_written():
    ahead, other = made(NCCL), made(in_turn(NCCL))
    assert_equal(learned(ahead, 0), learned(other, 0))
    assert not ahead.can_prefetch_replay(stack(0))
    assert_equal(learned(ahead, 0), learned(other, 0))


class OwnWriting(ExperienceReplay):
    """Does something of its own after every step."""

    def after_step(self, batch, step):
        super().after_step(batch, step)


@pytest.mark.parametrize(
    "learner",
    [
        lambda: made(
            ExperienceReplay,
            ReservoirMemory(9, IMAGE_SHAPE, "float32", extras={"logits": ((4,), "float32")}),
        ),
        lambda: made(OwnWriting),
    ],
    ids=["logits of a step", "own writing"],
)
def test_what_may_be_read_soon_is_written_at_once(learner):
    assert not learner().can_prefetch_replay(stack(0))


@pytest.mark.parametrize("method", [ExperienceReplay, pytest.param(NCCL, marks=pytest.mark.slow)])
def test_an_observer_sees_the_same(method):
    """Gamma of experience replay is taken on the memory batch that the step learns."""
    found = []
    for kind in (method, in_turn(method)):
        parts = [
            Examples(x["inputs"].reshape(-1, *IMAGE_SHAPE), y.reshape(-1))
            for x, y, _ in (chunk(0), chunk(1))
        ]
        tasks = [
            Task(i, TASK_CLASSES[i], len(part.labels), lambda part=part: part, lambda p=part: p)
            for i, part in enumerate(parts)
        ]
        learner, watching = made(kind), ForgettingDiagnostics(tasks, "full")
        for task in (0, 1):
            learner.fit(batches(task), task_id=task, verbose=0, callbacks=[watching])
        found.append(watching.record()["tasks"][1])
    assert found[0] == found[1] and found[0]["steps"] == STEPS and found[0]["gamma_raw"] != 0


def test_batches_without_task_ids_are_of_the_open_task():
    learner = made(NCCL)
    images = chunk(0)[0]["inputs"]
    learned(learner, 0)
    learner.begin_task(1)
    plain = BatchStack((images, *chunk(0)[1:]), tf.fill([STEPS], ROWS))
    assert learner.can_prefetch_replay(plain)
    learner.end_task()
    assert not learner.can_prefetch_replay(plain)
