"""A memory in a file gives the same bits as one in main memory; what cannot is refused."""

import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf import GEM, NCCL, ExperienceReplay, ReservoirMemory, RingMemory
from nccl_tf.errors import UserError
from tests.learner.test_prefetch import METHODS, batches, made
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

MEMORIES = {
    "ring": lambda folder: RingMemory(
        2, TASK_CLASSES, IMAGE_SHAPE, "float32", seed=3, memory_dir=folder
    ),
    "reservoir": lambda folder: ReservoirMemory(
        9, IMAGE_SHAPE, "float32", seed=3, memory_dir=folder
    ),
}


def state(learner):
    """All that learning depends on, the inputs of the memory's slots among it."""
    memory, rows = learner.memory, learner.memory.capacity + 1
    values = [v.numpy() for v in learner.state_variables().values() if v.name != "inputs"]
    values = [v[:-1] if v.shape[:1] == (rows,) else v for v in values]
    slots = np.arange(memory.capacity)
    inputs = memory.disk.fetch(slots)[0] if memory.disk else memory.inputs.numpy()[:-1]
    return [*values, inputs, *learner.step_log.state().values()]


def assert_same_bits(name, memory, tmp_path, learn, **arguments):
    method, more = METHODS[name]
    learners = [
        made(method, MEMORIES[memory](folder), **more, **arguments)
        for folder in (str(tmp_path), None)
    ]
    for learner in learners:
        learn(learner)
    for one, other in zip(*map(state, learners), strict=True):
        np.testing.assert_array_equal(one, other)
    assert not list(tmp_path.iterdir())  # a file without a name
    return learners[0]


def fit_both(broken=None):
    def learn(learner):
        for task in (0, 1):
            learner.fit(batches(task, broken), task_id=task, verbose=0)

    return learn


@pytest.mark.usefixtures("optimized_graphs")
@pytest.mark.parametrize(
    ("name", "memory", "broken"),
    # One by one below has a ring's.
    [("nccl", "reservoir", 5), pytest.param("er", "ring", None, marks=pytest.mark.slow)],
)
def test_a_memory_on_disk_gives_the_same_bits(name, memory, broken, tmp_path):
    learner = assert_same_bits(name, memory, tmp_path, fit_both(broken))
    assert int(learner.skipped) == (0 if broken is None else 2)
    assert learner.traces == 1


@pytest.mark.parametrize("memory", ["ring", pytest.param("reservoir", marks=pytest.mark.slow)])
def test_batches_one_by_one_give_the_same_bits(memory, tmp_path):
    """Of two lengths; the ring's task comes again, so that steps read what they have written."""

    def learn(learner):
        for task in (0, 0, 1):
            ragged = batches(task).unbatch().batch(8)
            learner.fit(ragged, task_id=task, verbose=0)

    learner = assert_same_bits("er", memory, tmp_path, learn)
    assert int(learner.step_log.steps.numpy()) == 18


@pytest.mark.slow  # the mask alone is tested in test_stream_mask
def test_what_the_stream_has_seen_is_masked_the_same(tmp_path):
    assert_same_bits("er", "reservoir", tmp_path, fit_both(), stream_mask="seen")


def on_disk(tmp_path, **arguments):
    return ReservoirMemory(9, IMAGE_SHAPE, memory_dir=str(tmp_path), **arguments)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda f: GEM(tiny_network(), MEMORIES["ring"](f)), "for GEM, which reads more of it"),
        (lambda f: nccl_tf.MIR(tiny_network(), on_disk(f)), "for MIR, which reads more of it"),
        (
            lambda f: ExperienceReplay(tiny_network(), ReservoirMemory(9, memory_dir=f), dark=0.5),
            "further columns, such as the logits of dark replay",
        ),
        (lambda f: on_disk(f, exclude_current_task=True), "for a ReservoirMemory, whose examples"),
        (
            lambda f: nccl_tf.ScoredMemory(9, IMAGE_SHAPE, memory_dir=f),
            "for a ScoredMemory, whose examples have to be at hand",
        ),
        (lambda f: on_disk(f / "none"), "which is no folder: make it first"),
        (
            lambda f: ReservoirMemory(10**12, (84, 84, 3), memory_dir=str(f)),
            "GB free, for a memory of up to 21,168,000.0 GB: lower the number of slots",
        ),
    ],
    ids=["gem", "mir", "dark", "past", "scored", "folder", "room"],
)
def test_what_cannot_have_a_memory_on_disk_is_refused(build, said, tmp_path):
    with pytest.raises(UserError, match=said):
        build(tmp_path)


def test_it_is_neither_saved_nor_read_as_a_whole(tmp_path):
    learner = NCCL(tiny_network(), on_disk(tmp_path))
    for read in (lambda: learner.save(tmp_path / "model.keras"), lambda: learner.memory.inputs):
        with pytest.raises(UserError, match="lie in a file that ends with the process"):
            read()


def test_a_learner_that_reads_it_in_a_graph_otherwise_is_refused(tmp_path):
    memory = on_disk(tmp_path)
    read = tf.function(lambda: memory.read(2).inputs, autograph=False)
    with pytest.raises(UserError, match="reads more than one batch that is drawn ahead"):
        read()
