"""A memory stores an example of a fit once, in its first pass, unless it is asked for every one."""

import contextlib
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.fit import first_pass
from nccl_tf.methods.registry import METHODS
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.methods.learners import make
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, renewed, tiny_batches, tiny_network

RANDOM = np.random.default_rng(0)
COUNT = 20
IMAGES = RANDOM.integers(0, 256, (COUNT, *IMAGE_SHAPE), dtype=np.uint8)
LABELS = RANDOM.choice(TASK_CLASSES[0], COUNT).astype(np.int32)
ONE_PER_CODE_PATH = (
    "er_ring", "er_reservoir", "er_gmed", "gdumb", "gss_greedy", "icarl", "mas", "mc_sgd",
)  # fmt: skip
STORING = [
    name if name in ONE_PER_CODE_PATH else pytest.param(name, marks=pytest.mark.nightly)
    for name in {row.learner: row.name for row in reversed(METHODS.values()) if row.stores}.values()
    if name != "cn_dpm"
]


def reservoir(capacity=100, run_eagerly=True, **arguments):
    memory = nccl_tf.ReservoirMemory(capacity, IMAGE_SHAPE)
    learner = nccl_tf.ExperienceReplay(tiny_network(), memory, memory_batch_size=2, **arguments)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=run_eagerly)
    return learner


def seen(learner) -> int:
    return int(learner.memory.seen.numpy())


def stored(learner) -> dict[str, np.ndarray]:
    """What the memories hold, but for the number of draws and the edits of GMED."""
    edited = isinstance(learner.memory, nccl_tf.EditedReservoirMemory)
    for memory in learner.memories():
        memory.blank_spare_row()
    left_out = {"draws", *(("inputs", "ages", "edit_draws") if edited else ())}
    found = {
        f"{i} {variable.name}": variable.numpy()
        for i, memory in enumerate(learner.memories())
        for variable in memory.variables
        if variable.name not in left_out
    }
    spare = " counts", " scores"  # have a last entry for what is not stored
    return {name: value[:-1] if name.endswith(spare) else value for name, value in found.items()}


@pytest.mark.parametrize("name", STORING)
def test_a_second_epoch_leaves_memories_as_they_are(name):
    """Those of a method and its samples of a task, of which each has room for what comes again."""
    held = []
    for epochs in (1, 2):
        learner = make(name, run_eagerly=True)
        learner.fit(
            IMAGES[:8], LABELS[:8], batch_size=4, epochs=epochs, shuffle=False, verbose=0,
            end_task=False,
        )  # fmt: skip
        held.append(stored(learner))
    one, two = held
    for variable, value in one.items():
        np.testing.assert_array_equal(two[variable], value, err_msg=variable)


@pytest.mark.seconds(20)
@pytest.mark.parametrize(
    ("name", "jit_compile"),
    [("slda", False), ("ncm", False), ("ranpac", False), ("fecam", False), ("slda", True)],
)
def test_statistics_of_features_count_an_example_once(name, jit_compile):
    """In the second task too, whose passes are fewer; asked for every pass, they count them all.

    What counts is said by the learner that all are made of: one tells how XLA compiles it.
    """

    def built(**options):
        return make(name, options=options, jit_compile=jit_compile)

    def statistics(learner, epochs):
        labels = np.arange(COUNT, dtype=np.int32) % 2
        learner.fit(IMAGES, labels, batch_size=8, epochs=epochs, shuffle=False, verbose=0)
        learner.fit(IMAGES, 2 + labels, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return [variable.numpy() for variable in learner.statistics]

    learner = built()
    before = variables_to_arrays(learner.state_variables)
    once, thrice = statistics(learner, 1), statistics(renewed(learner, before), 3)
    for one, other in zip(once, thrice, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)
    every = statistics(built(stores="every_epoch"), 3)
    total = {"slda": 1, "ncm": 1, "ranpac": 2, "fecam": 0}[name]
    assert once[total].sum() == 2 * COUNT and every[total].sum() == 5 * COUNT


def test_old_examples_are_left_in_their_share():
    """The recipe for a trained model: 30 of before and 90 new ones in 40 slots."""
    images = RANDOM.integers(0, 256, (120, *IMAGE_SHAPE), dtype=np.uint8)
    labels = np.repeat([0, 2], (30, 90)).astype(np.int32)
    learner = reservoir(40, run_eagerly=False)
    learner.remember(images[:30], labels[:30])
    learner.fit(images[30:], labels[30:], batch_size=10, epochs=4, verbose=0)
    # Hypergeometric: 10 on the average, and from 6 to 14 in 95 of 100 cases; of 390 draws 3.
    assert 6 <= np.sum(learner.memory.read_all().labels == 0) <= 14 and seen(learner) == 120


def dataset(repeats=False):
    batches = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(4)
    return batches.repeat() if repeats else batches


def generator():
    while True:
        yield from ((images.numpy(), labels.numpy()) for images, labels in dataset())


WAYS = {
    "arrays": (lambda: {"x": IMAGES, "y": LABELS, "batch_size": 4, "epochs": 3}, 20),
    "data set": (lambda: {"x": dataset(), "epochs": 3}, 20),
    "later epochs": (lambda: {"x": dataset(), "initial_epoch": 5, "epochs": 8}, 20),
    # Two steps of the five an epoch, so that the third ends the first pass.
    "part": (lambda: {"x": dataset(), "steps_per_epoch": 2, "epochs": 6}, 20),
    "endless": (lambda: {"x": dataset(True), "steps_per_epoch": 2, "epochs": 6}, 48),
    "generator": (lambda: {"x": generator(), "steps_per_epoch": 2, "epochs": 3}, 24),
    "resumed": (lambda: {"x": dataset(), "initial_epoch": 1, "epochs": 3, "resumes": True}, 0),
}


@functools.cache
def fitted_in_every_way():
    """A learner whose graphs serve all ways, and its first state."""
    learner = reservoir(run_eagerly=False)
    return learner, variables_to_arrays(learner.state_variables)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_fit_counts_an_example_once(way):
    arguments, expected = WAYS[way]
    learner = renewed(*fitted_in_every_way())
    learner.fit(**arguments(), verbose=0)
    assert seen(learner) == expected


def test_every_epoch_is_stored_where_it_is_asked_for():
    learner = reservoir(stores="every_epoch")
    learner.fit(IMAGES, LABELS, epochs=3, verbose=0)
    assert seen(learner) == 3 * COUNT and len(learner.memory.read_all().labels) == 3 * COUNT


def test_the_first_pass_in_epochs():
    assert first_pass(3, 7, None) == range(3, 4)
    assert [len(first_pass(0, 6, steps)) for steps in (1, 3, 4, 6, 9)] == [6, 2, 2, 1, 1]
    assert 10**9 in first_pass(0, None, 5)


def test_outside_of_a_fit_everything_is_stored():
    learner = reservoir()
    with pytest.raises(ZeroDivisionError):
        fail = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, _: 1 // (1 - epoch))
        learner.fit(IMAGES, LABELS, epochs=3, callbacks=[fail], verbose=0)
    learner.train_on_batch(IMAGES[:3], LABELS[:3])
    assert seen(learner) == COUNT + 3
    learner.end_task()
    learner.remember(IMAGES[:5], LABELS[:5])
    learner.fit(IMAGES, LABELS, epochs=2, verbose=0, task_id=2)
    assert seen(learner) == COUNT + 8 + COUNT


def test_a_graph_serves_all_epochs_and_tasks():
    memory = nccl_tf.ReservoirMemory(100, IMAGE_SHAPE)
    learner = nccl_tf.ExperienceReplay(tiny_network(), memory)
    learner.compile(keras.optimizers.SGD(0.1), steps_per_execution=3)
    for task in range(2):
        learner.fit(tiny_batches(task, 30), epochs=2, task_id=task, verbose=0)
        assert seen(learner) == 30 * (task + 1)
    assert learner.execution.traces == 1


def test_a_fit_that_keras_restores_stores_nothing_twice(tmp_path):
    """In its second epoch, with the memory of the first."""

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def fitted(*callbacks):
        learner, backup = reservoir(), keras.callbacks.BackupAndRestore(tmp_path / "backup")
        with contextlib.suppress(KeyboardInterrupt):
            learner.fit(
                IMAGES, LABELS, batch_size=4, epochs=3, callbacks=[backup, *callbacks], verbose=0
            )
        return seen(learner)

    assert [fitted(Stop()), fitted()] == [COUNT, COUNT]


def test_an_unknown_value_is_refused():
    with pytest.raises(UserError, match="stores"):
        reservoir(stores="always")
