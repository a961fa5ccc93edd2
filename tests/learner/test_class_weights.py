"""`class_weight` weighs the examples of the stream and those that are replayed, by their labels."""

import functools
from itertools import permutations

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.learner.test_chunk import assert_equal, built, examples, learned
from tests.methods.hand import ALPHA, MEMORY, STREAM, WEIGHTS, gradient, network, stream
from tests.methods.learners import make, values
from tests.methods.test_battery import CLASSES
from tests.tiny import TASK_CLASSES, tiny_batches, tiny_network

FACTORS = {0: 3.0, 1: 0.5, 2: 4.0}
EAGER = {"run_eagerly": True}


def weighed(images, labels, weights=None, at=WEIGHTS):
    """The gradient of the mean by weights, those of the classes without others."""
    weights = [FACTORS[label] for label in labels] if weights is None else weights
    each = [gradient(images[[i]], labels[[i]], at) for i in range(len(labels))]
    return np.average(each, axis=0, weights=weights)


def replaying(learner_class, images=MEMORY[0], labels=MEMORY[1], **arguments):
    """A learner that replays all of these examples in every step, each once."""
    memory = nccl_tf.ReservoirMemory(len(labels))
    learner = learner_class(network(), memory, memory_batch_size=len(labels), **arguments)
    learner.compile(keras.optimizers.SGD(ALPHA), **EAGER)
    learner.remember(images, labels)
    return learner


def stepped(learner, data=None):
    learner.fit(data or stream(), class_weight=FACTORS, verbose=0)
    return learner.network.get_weights()[0]


def test_a_step_of_er_by_hand():
    """All examples of a step weigh what their classes do in one mean."""
    labels = np.concatenate([MEMORY[1], STREAM[1]])
    expected = weighed(np.concatenate([MEMORY[0], STREAM[0]]), labels)
    after = stepped(replaying(nccl_tf.ExperienceReplay))
    np.testing.assert_allclose(after, WEIGHTS - ALPHA * expected, rtol=1e-12)


@pytest.mark.parametrize("padding", [0, 2])
def test_a_step_of_er_by_hand_with_weights_of_the_examples(padding):
    """Those of the stream weigh 1 on the average, as stored ones do, before classes weigh them."""
    images, labels = STREAM
    rows = [0, 1] + [0] * padding
    given = np.array([1.0, 7.0] + [0.0] * padding, np.float32)
    data = (images[rows], labels[rows].astype(np.int64), given)
    weights = [FACTORS[label] for label in MEMORY[1]]
    weights += [0.25 * FACTORS[labels[0]], 1.75 * FACTORS[labels[1]]]
    both = np.concatenate([MEMORY[0], images]), np.concatenate([MEMORY[1], labels])
    after = stepped(replaying(nccl_tf.ExperienceReplay), tf.data.Dataset.from_tensors(data))
    np.testing.assert_allclose(after, WEIGHTS - ALPHA * weighed(*both, weights), rtol=1e-7)


@pytest.mark.parametrize("gradients", ["auto", "two_tapes"])
@pytest.mark.parametrize("method", [nccl_tf.AGEM, nccl_tf.NCCL])
def test_a_step_of_two_gradients_by_hand(method, gradients):
    images, labels = np.concatenate([STREAM[0], MEMORY[0][:1]]), np.array([2, 0, 1])
    f, g = weighed(images, labels), weighed(*STREAM)
    dot = np.sum(f * g)
    assert dot < 0 and not np.allclose(f, gradient(images, labels))
    of_memory = -dot / np.sum(f * f) + (method is nccl_tf.NCCL)
    learner = replaying(method, images, labels, gradients=gradients)
    assert (learner._rows is None) == (gradients == "two_tapes")
    expected = WEIGHTS - ALPHA * (of_memory * f + g)
    np.testing.assert_allclose(stepped(learner), expected, rtol=1e-12)


def test_a_walk_of_mer_by_hand():
    """A step on one example is as long as its class weighs, and 1 on the average."""
    lengths = np.array([FACTORS[label] for label in MEMORY[1]])
    lengths *= 3 / lengths.sum()
    ends = []
    for order in permutations(range(3)):
        at = WEIGHTS
        for i in order:
            one = MEMORY[0][[i]], MEMORY[1][[i]]
            at = at - ALPHA * lengths[i] * gradient(*one, at)
        ends.append(at - ALPHA * weighed(*STREAM, at=at))
    after = stepped(replaying(nccl_tf.MER, meta_rate=1.0, stream_multiplier=1.0))
    assert sum(np.allclose(after, end, rtol=1e-6) for end in ends) == 1


WITHOUT = {"cn_dpm", "fecam", "slda", "ncm", "ranpac"}
OPTIONS = {
    "gec": {"gec_tolerance": 0.0},  # replays in a few steps too
    "gdumb": {"passes": 4},  # and not 128
    "mc_sgd": {"line_steps": 4},  # and not 50
    "mir": {"candidates": 4},  # replays them all, and not four of one class
}
ONE_PER_CODE_PATH = {"er_ring", "gdumb", "mc_sgd", "mer", "gem"}


def battery(names):
    return [
        name if name in ONE_PER_CODE_PATH else pytest.param(name, marks=pytest.mark.nightly)
        for name in names
        if name not in WITHOUT
    ]


@functools.cache
def after_two_tasks(name, *class_weight):
    """What is left of a network where the second task weighs the classes of the first too."""
    learner = make(name, options=OPTIONS.get(name), **EAGER)
    learner.fit(tiny_batches(0, 10), task_id=0, verbose=0)
    learner.fit(tiny_batches(1, 10), task_id=1, class_weight=dict(class_weight) or None, verbose=0)
    return learner.network.get_weights()


@pytest.mark.parametrize("name", battery(CLASSES))
def test_only_ratios_count(name):
    alike = [(label, 4.0) for label in range(4)]  # By a power of two nothing is rounded.
    for one, other in zip(after_two_tasks(name), after_two_tasks(name, *alike), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", battery(n for n in CLASSES if nccl_tf.METHODS[n].memory))
def test_every_memory_weighs_the_classes_of_earlier_tasks(name):
    weighed, plain = after_two_tasks(name, (0, 9.0)), after_two_tasks(name)
    assert any((one != other).any() for one, other in zip(weighed, plain, strict=True))


IMAGES, LABELS = next(iter(tiny_batches(0, 12, 12)))[:2]
IMAGES, LABELS = IMAGES["inputs"].numpy(), LABELS.numpy()
CLASS_WEIGHT = {0: 3.0, 1: 0.5}


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        rows = slice(4 * index, 4 * index + 4)
        return IMAGES[rows], LABELS[rows]


def pairs():
    yield from (Batches()[index] for index in range(3))


FORMS = {
    "arrays": lambda: {"x": IMAGES, "y": LABELS, "batch_size": 4, "shuffle": False},
    "data set": lambda: {"x": tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(4)},
    "sequence": lambda: {"x": Batches(), "shuffle": False},
    "generator": lambda: {"x": pairs()},
}


def finetune(loss=None, outputs=4, **arguments):
    learner = nccl_tf.Finetune(tiny_network(outputs), **arguments)
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, **EAGER)
    return learner


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_data_are_weighed(form):
    learner, expected = finetune(), finetune()
    history = learner.fit(**FORMS[form](), class_weight=CLASS_WEIGHT, verbose=0).history
    data = {**FORMS["arrays"](), "sample_weight": np.where(LABELS == 0, 3.0, 0.5)}
    assert history == expected.fit(**data, verbose=0).history
    for one, other in zip(values(learner), values(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_of_examples_and_of_classes_are_multiplied():
    learner, expected = finetune(), finetune()
    weights = np.linspace(1, 2, 12, dtype=np.float32)
    learner.fit(IMAGES, LABELS, sample_weight=weights, class_weight={0: 4.0}, shuffle=False)
    factors = np.where(LABELS == 0, 4.0, 1.0)
    expected.fit(IMAGES, LABELS, sample_weight=weights * factors, shuffle=False)
    for one, other in zip(values(learner), values(expected), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.seconds(25)  # XLA compiles the step, with and without class weights
def test_a_chunk_is_single_steps_and_factors_need_no_other_graph():
    alone, together = built("er", False, 1), built("er", True)
    for learner in (alone, together):
        learned(learner, class_weight={0: 3.0, 2: 0.5})
        for class_weight in ({1: 2.0}, None):
            data = {"task_id": 1, "batch_size": 4, "shuffle": False, "verbose": 0}
            learner.fit(*examples(1, 4 * 5), class_weight=class_weight, **data)
        assert learner.execution.traces == 1
    assert_equal(alone, together)


def test_a_task_that_is_weighed_among_others_that_are_not():
    """In a graph that was traced without weights of classes, and in none."""
    in_graph, eager = (built("er", False, 1) for _ in range(2))
    eager.compile(keras.optimizers.SGD(0.05, momentum=0.5), **EAGER)
    for learner in (in_graph, eager):
        for task, class_weight in enumerate([None, {0: 4.0, 3: 0.5}]):
            data = {"class_weight": class_weight, "shuffle": False, "verbose": 0}
            learner.fit(*_examples(task), task_id=task, batch_size=4, **data)
        learner.fit(*_examples(1), task_id=1, batch_size=4, shuffle=False, verbose=0)
    assert_equal(eager, in_graph)
    assert in_graph.execution.traces == 2


def test_classes_weigh_alike_again_to_the_bit():
    plain, learner = (built("er", False, 1) for _ in range(2))
    for each in (plain, learner):
        each.compile(keras.optimizers.SGD(0.05, momentum=0.5), **EAGER)
    learner.fit(*_examples(0), class_weight={1: 5.0}, epochs=0, end_task=False, verbose=0)
    for each in (plain, learner):
        for task in range(2):
            each.fit(*_examples(task), task_id=task, shuffle=False, verbose=0)
    assert learner.class_weighing.are_set and not plain.class_weighing.are_set
    for one, other in zip(values(plain), values(learner), strict=True):
        np.testing.assert_array_equal(one, other)


def _examples(task):
    images, labels, _ = next(iter(tiny_batches(task, 12, 12)))
    return images["inputs"].numpy(), labels.numpy()


def test_they_hold_until_the_task_ends():
    memory = nccl_tf.ReservoirMemory(12)
    learner = nccl_tf.ExperienceReplay(tiny_network(), memory, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), **EAGER)
    learner.fit(IMAGES, LABELS, class_weight=CLASS_WEIGHT, end_task=False, verbose=0)
    read = memory.read(12)
    assert read.weights.numpy().tolist() == [CLASS_WEIGHT[int(y)] for y in read.labels]
    assert (memory.read_all().weights == 1).all()
    learner.end_task()
    assert (memory.read(12).weights.numpy() == 1).all()
    learner.train_on_batch(IMAGES[:4], LABELS[:4], class_weight=CLASS_WEIGHT)
    assert set(memory.read(12).weights.numpy()) == {3.0, 0.5}


def test_validation_is_not_weighed():
    learner = finetune()
    data = {"validation_data": (IMAGES, LABELS), "class_weight": CLASS_WEIGHT, "verbose": 0}
    logs = learner.fit(IMAGES, LABELS, **data).history
    expected = learner.evaluate(IMAGES, LABELS, task_id=0, verbose=0, return_dict=True)
    assert logs["val_loss"][0] == expected["loss"]


@pytest.mark.parametrize("shape", [(12,), (12, 1)])
def test_one_output_of_two_classes(shape):
    """As Keras's binary classifiers have it."""
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    labels = LABELS.reshape(shape).astype(np.float32)
    learner, expected = (finetune(loss, 1) for _ in range(2))
    learner.fit(IMAGES, labels, class_weight=CLASS_WEIGHT, shuffle=False, verbose=0)
    weights = np.where(LABELS == 0, 3.0, 0.5)
    expected.fit(IMAGES, labels, sample_weight=weights, shuffle=False, verbose=0)
    for one, other in zip(values(learner), values(expected), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(UserError, match="the class 2, expected numbers of classes from 0 to 1"):
        learner.fit(IMAGES, labels, class_weight={2: 1.0}, verbose=0)


def test_one_hot_rows():
    loss = keras.losses.CategoricalCrossentropy(from_logits=True)
    learner, expected = finetune(loss), finetune()
    learner.fit(
        IMAGES, np.eye(4, dtype=np.float32)[LABELS], class_weight=CLASS_WEIGHT, shuffle=False,
        verbose=0,
    )  # fmt: skip
    expected.fit(IMAGES, LABELS, class_weight=CLASS_WEIGHT, shuffle=False, verbose=0)
    for one, other in zip(learner.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8)


def test_classes_by_the_names_of_a_data_set():
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(4)
    data.class_names = ["cat", "dog", "emu", "fox"]
    learner, expected = finetune(), finetune()
    learner.fit(data, class_weight={"cat": 3.0, "dog": 0.5}, verbose=0)
    expected.fit(data, class_weight=CLASS_WEIGHT, verbose=0)
    for one, other in zip(values(learner), values(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_has_no_meaning_is_refused_before_a_task_begins():
    cases = [
        (finetune(), {9: 2.0}, "the class 9"),
        (finetune("mse"), {0: 2.0}, "take sample_weight"),
        (finetune(keras.losses.BinaryCrossentropy(from_logits=True)), {0: 2.0}, "sample_weight"),
        (make("slda", **EAGER), {0: 2.0}, "keeps statistics of each class"),
    ]
    for learner, class_weight, said in cases:
        for verb in (learner.fit, learner.train_on_batch):
            with pytest.raises(UserError, match=said):
                verb(IMAGES, LABELS, class_weight=class_weight)
        assert not bool(learner.progress.task_is_open.numpy())


def test_a_head_that_has_grown():
    memory = nccl_tf.ReservoirMemory(20)
    learner = nccl_tf.ExperienceReplay(tiny_network(2), memory, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), **EAGER)
    learner.fit(IMAGES, LABELS, class_weight=CLASS_WEIGHT, verbose=0)
    learner.add_classes(2)
    new = {"task_id": 1, "end_task": False, "verbose": 0}
    learner.fit(IMAGES, LABELS + 2, class_weight={0: 2.0, 3: 8.0}, **new)
    read = memory.read(20)
    assert {*zip(read.labels.numpy(), read.weights.numpy(), strict=True)} >= {(0, 2.0), (3, 8.0)}
    assert (memory.read_all().weights == 1).all()


def test_importances_are_means_over_examples_whatever_classes_weigh():
    learner = make("mas", **EAGER)
    learner.fit(IMAGES, LABELS, task_id=0, end_task=False, verbose=0)
    plain = [part.numpy() for part in learner._measure()]
    of_one = LABELS == 1
    learner.optimizer.learning_rate = 0.0
    learner.fit(
        IMAGES[of_one], LABELS[of_one], task_id=0, end_task=False, resumes=True, verbose=0,
        class_weight={0: 0.0},
    )  # fmt: skip
    for one, other in zip(plain, learner._measure(), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_a_preconditioner_is_of_outputs_whatever_classes_weigh():
    parts = []
    for class_weight in (None, CLASS_WEIGHT):
        memory = nccl_tf.ReservoirMemory(12)
        learner = nccl_tf.LPR(tiny_network(), memory, memory_batch_size=4)
        learner.compile(keras.optimizers.SGD(0.1), **EAGER)
        learner.remember(IMAGES, LABELS)
        learner.train_on_batch(IMAGES[:4], LABELS[:4], class_weight=class_weight)
        parts.append([each.inverse.numpy() for each in learner.preconditioners])
    for one, other in zip(*parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_mixed_images_weigh_what_each_of_their_labels_does():
    seen = []

    class Noting(nccl_tf.GDumb):
        def learn_mixed(self, batch, other, share):
            seen.extend((part.labels.numpy(), part.weights.numpy()) for part in (batch, other))
            return super().learn_mixed(batch, other, share)

    memory = nccl_tf.ReservoirMemory(8)
    learner = Noting(tiny_network(), memory, memory_batch_size=3, cutmix=1.0)
    learner.compile(keras.optimizers.SGD(0.1), **EAGER)
    learner.fit(IMAGES, LABELS, class_weight=CLASS_WEIGHT, end_task=False, verbose=0)
    learner._one_pass(*(tf.constant(i, tf.int64) for i in (0, 1)))
    assert any((seen[i][0] != seen[i + 1][0]).any() for i in range(0, len(seen), 2))
    for labels, weights in seen:
        factors = np.array([CLASS_WEIGHT[int(label)] for label in labels], np.float32)
        assert set(weights / factors) <= {0.0, 1.0}


def test_rings_weigh_too():
    memory = nccl_tf.RingMemory(2, TASK_CLASSES)
    learner = nccl_tf.GEM(tiny_network(), memory)
    learner.compile(keras.optimizers.SGD(0.1), **EAGER)
    learner.fit(IMAGES, LABELS, task_id=0, verbose=0)
    learner.fit(*_examples(1), task_id=1, class_weight={1: 7.0}, end_task=False, verbose=0)
    tasks = memory.read_tasks()
    assert set(tasks.weights.numpy()[0]) == {1.0, 7.0}
