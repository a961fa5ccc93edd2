"""`remember`: a memory that begins with examples of before, and the line of `summary`."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from tests.methods.learners import make
from tests.session.test_learn import tiny_stream
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_network

ONE_PER_CODE_PATH = ("er_reservoir", "icarl", "cn_dpm")
WITH_MEMORY = [
    name if name in ONE_PER_CODE_PATH else pytest.param(name, marks=pytest.mark.nightly)
    for name in sorted({row.learner: row.name for row in METHODS.values() if row.memory}.values())
]
REFUSE = ("cn_dpm",)
TRAINS_AT_THE_END = ("gdumb",)  # of a task, from nothing, on its memory


def examples(task=0):
    return tiny_stream()[task].train


def learner_of(cls, memory, **kwargs):
    learner = cls(tiny_network(), memory, memory_batch_size=4, **kwargs)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return learner


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_every_method_with_a_memory_learns_on_from_examples_of_before(name):
    # What trains at the end takes more steps than a graph takes to build.
    learner = make(name, run_eagerly=name not in TRAINS_AT_THE_END)
    if name in REFUSE:
        with pytest.raises(UserError, match="fit it"):
            learner.remember(*examples()[:2])
        return
    network = [v.numpy() for v in learner.network.trainable_variables]
    learner.remember(tiny_stream()[0])
    for before, now in zip(network, learner.network.trainable_variables, strict=True):
        assert name in TRAINS_AT_THE_END or np.array_equal(before, now.numpy())
    stored = learner.memory.read_all()
    given = {image.tobytes() for image in np.asarray(examples().inputs, stored.inputs.dtype)}
    assert len(stored.labels) and {image.tobytes() for image in stored.inputs} <= given
    assert set(stored.tasks.tolist()) == {0} and learner.progress.tasks_ended == 1
    learner.fit(tiny_stream()[1], verbose=0)
    assert np.isfinite(learner.accuracy(tiny_stream()[0]))


def test_parts_of_any_size_are_traced_once():
    learner = learner_of(nccl_tf.ExperienceReplay, nccl_tf.ReservoirMemory(100))
    inputs, labels, *_ = examples()
    for size in (7, 3, 12):
        learner.remember(inputs[:size], labels[:size], batch_size=5)
    assert learner._base.remember.experimental_get_tracing_count() == 1
    kept = learner.memory.read_all().inputs
    given = np.concatenate([inputs[:size] for size in (7, 3, 12)])
    np.testing.assert_array_equal(kept, given)


def test_it_holds_what_a_fit_leaves():
    """A ring keeps the last of each class, whichever way they came."""
    kept = []
    for remembers in (True, False):
        learner = learner_of(nccl_tf.ExperienceReplay, nccl_tf.RingMemory(3, TASK_CLASSES))
        if remembers:
            learner.remember(*examples()[:2], batch_size=7)
        else:
            learner.fit(*examples()[:2], shuffle=False, verbose=0)
        kept.append(learner.memory.read_all())
    for mine, other in zip(kept[0][:3], kept[1][:3], strict=True):
        np.testing.assert_array_equal(mine, other)


def test_dark_replay_stores_the_logits_of_the_network_as_it_is():
    for cls, more in ((nccl_tf.DERpp, {}), (nccl_tf.ExperienceReplay, {"dark": 0.5})):
        learner = learner_of(cls, nccl_tf.ReservoirMemory(8), **more)
        learner.remember(*examples()[:2])
        stored = learner.memory.read_all()
        expected = learner.network(stored.inputs, training=False)
        np.testing.assert_allclose(stored.extras["logits"], expected, rtol=1e-5, atol=1e-6)


def test_a_single_head_predicts_what_it_remembers():
    learner = learner_of(nccl_tf.ExperienceReplay, nccl_tf.ReservoirMemory(8))
    learner.remember(*examples()[:2])
    assert np.flatnonzero(learner.progress.seen_classes.numpy()).tolist() == sorted(TASK_CLASSES[0])


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (nccl_tf.ReservoirMemory(7), True),
        (nccl_tf.ReservoirMemory(200), False),
        (nccl_tf.RingMemory(3, TASK_CLASSES), True),
        (nccl_tf.RingMemory(100, TASK_CLASSES), False),
    ],
)
def test_it_says_once_that_it_keeps_less_than_it_was_given(memory, says, caplog):
    learner = learner_of(nccl_tf.ExperienceReplay, memory)
    for _ in range(2):
        learner.remember(*examples()[:2])
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == says
    if says:
        count = len(examples().labels)
        assert str(count) in said[0] and str(len(memory.read_all().labels)) in said[0]


def test_tasks_in_the_data_are_kept_apart():
    first, second = examples(0), examples(1)
    inputs = np.concatenate([second.inputs, first.inputs])
    labels = np.concatenate([second.labels, first.labels])
    tasks = np.repeat([1, 0], [len(second.labels), len(first.labels)])
    learner = learner_of(nccl_tf.ExperienceReplay, nccl_tf.RingMemory(3, TASK_CLASSES))
    learner.remember({"inputs": inputs, "task": tasks}, labels)
    stored = learner.memory.read_all()
    assert set(stored.tasks.tolist()) == {0, 1} and learner.progress.tasks_ended == 2
    for task, label in zip(stored.tasks.tolist(), stored.labels.tolist(), strict=True):
        assert label in TASK_CLASSES[task]


def test_what_has_no_meaning_is_refused():
    images, labels = examples()[:2]
    with pytest.raises(UserError, match="without a memory"):
        learner = nccl_tf.Finetune(tiny_network())
        learner.compile("sgd")
        learner.remember(images, labels)
    learner = nccl_tf.ExperienceReplay(tiny_network(), nccl_tf.ReservoirMemory(8))
    with pytest.raises(UserError, match="compile it"):
        learner.remember(images, labels)
    learner.compile("sgd")
    with pytest.raises(UserError, match="without labels"):
        learner.remember(images)
    with pytest.raises(UserError, match="99"):
        learner.remember(images, np.full(len(labels), 99))
    learner.fit(images, labels, end_task=False, verbose=0)
    with pytest.raises(UserError, match="end_task"):
        learner.remember(images, labels, task_id=1)


def test_the_summary_names_the_memory_and_counts_the_network():
    memory = nccl_tf.ReservoirMemory(1000, IMAGE_SHAPE)
    lines = []
    learner_of(nccl_tf.ExperienceReplay, memory).summary(print_fn=lines.append)
    said = "\n".join(lines)
    assert "ReservoirMemory" in lines[-1] and "1000 slots" in lines[-1]
    assert f"{tiny_network().count_params():,}" in said


def test_it_takes_text():
    vectorize = keras.layers.TextVectorization(output_mode="multi_hot")
    vectorize.adapt(["good film", "bad film"])
    network = keras.Sequential([keras.Input((), dtype="string"), vectorize, keras.layers.Dense(2)])
    learner = nccl_tf.DERpp(network, nccl_tf.ReservoirMemory(8), memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1))
    texts = np.array(["good film", "bad film", "good", "bad"])
    learner.remember(texts, np.array([0, 1, 0, 1]))
    stored = learner.memory.read_all()
    assert {text.decode() for text in stored.inputs} == set(texts.tolist())
