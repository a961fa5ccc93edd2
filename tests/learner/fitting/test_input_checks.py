"""Every verb says in a sentence which data it cannot take, and takes good ones afterwards."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.fitting.input_checks import explained_inputs
from tests.tiny import IMAGE_SHAPE, tiny_network

COUNT = 12
LABELS = np.arange(COUNT) % 4
IMAGES = np.random.default_rng(0).integers(0, 256, (COUNT, *IMAGE_SHAPE), np.uint8)
RAGGED = tf.RaggedTensor.from_row_lengths(tf.range(3 * COUNT // 2), [1, 2] * (COUNT // 2))
OBJECTS = np.empty(COUNT, object)
OBJECTS[:] = [[1.0] * (1 + i % 2) for i in range(COUNT)]

VERBS = {
    "fit": lambda learner, x, y: learner.fit(x, y, verbose=0),
    "train_on_batch": lambda learner, x, y: learner.train_on_batch(x, y),
    "evaluate": lambda learner, x, y: learner.evaluate(x, y, verbose=0),
    "test_on_batch": lambda learner, x, y: learner.test_on_batch(x, y),
    "predict": lambda learner, x, y: learner.predict(x, verbose=0),
    "predict_on_batch": lambda learner, x, y: learner.predict_on_batch(x),
    "accuracy": lambda learner, x, y: learner.accuracy(x, y, 0),
}
UNFIT = {
    "empty": (IMAGES[:0], "received no examples"),
    "sides": (IMAGES[:, :3], r"uint8 \[n, 3, 4, 1\], but the network's input .* \[n, 4, 4, 1\]"),
    "flat": (IMAGES.reshape(COUNT, -1), r"received inputs uint8 \[n, 16\], but the network's"),
    "text": (np.array(["text"] * COUNT), r"received inputs string \[n\], but the network's input"),
    "ragged": (RAGGED, "received ragged inputs.* pad them to one length"),
    "masked": (np.ma.masked_less(IMAGES, 9), "received inputs with .* masked"),
    "objects": (OBJECTS, "received inputs of dtype object.* pad sequences"),
}


def compiled(network=None, **memory) -> nccl_tf.Learner:
    memory = nccl_tf.ReservoirMemory(8, **memory)
    learner = nccl_tf.ExperienceReplay(network or tiny_network(), memory)
    learner.compile(keras.optimizers.SGD(0.1))
    return learner


@pytest.fixture(scope="module")
def untrained():
    return compiled()


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_names_inputs_that_the_network_cannot_take(untrained, verb):
    before = [weight.copy() for weight in untrained.network.get_weights()]
    for x, said in UNFIT.values():
        with pytest.raises(nccl_tf.UserError, match=said):
            VERBS[verb](untrained, x, LABELS[: len(x)] if isinstance(x, np.ndarray) else LABELS)
    for left, right in zip(before, untrained.network.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    assert not untrained.memory.is_allocated


def test_good_data_are_learned_after_refused_ones():
    learner = compiled()
    with pytest.raises(nccl_tf.UserError):
        learner.fit(IMAGES[:, :3], LABELS, verbose=0)
    assert np.isfinite(learner.fit(IMAGES, LABELS, verbose=0).history["loss"]).all()
    assert int(learner.task.numpy()) == 0


@pytest.mark.parametrize("verb", ["fit", "evaluate", "predict"])
def test_a_dataset_is_looked_into(untrained, verb):
    whole = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    few = {
        "received no examples": whole.take(0).batch(4),
        r"\(an empty _?\w*Dataset\)": whole.filter(lambda x, y: y > 9).batch(4),
        r"uint8 \[n, 3, 4, 1\]": whole.map(lambda x, y: (x[:3], y)).batch(4),
        "received ragged": tf.data.Dataset.from_tensor_slices((RAGGED, LABELS)).batch(4),
        r"single examples, uint8 \[4, 4, 1\].*dataset.batch": whole,
    }
    for said, dataset in few.items():
        with pytest.raises(nccl_tf.UserError, match=said):
            VERBS[verb](untrained, dataset, None)


def test_a_dataset_that_turns_out_empty_is_named_after_a_fit():
    learner = compiled()
    learner.fit(IMAGES, LABELS, verbose=0)
    nothing = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS)).filter(lambda x, y: y > 9)
    for verb in ("fit", "evaluate"):
        with pytest.raises(nccl_tf.UserError, match="received no examples"):
            VERBS[verb](learner, nothing.batch(4), None)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (None, "received no data"),
        (IMAGES.tolist(), "received a list as inputs.* np.asarray"),
        (tf.sparse.from_dense(np.eye(COUNT)), "received sparse inputs.*to_dense"),
        ((IMAGES, IMAGES), r"received 2 inputs for an example, but the network has 1"),
    ],
)
def test_what_is_no_array_is_named(untrained, x, said):
    with pytest.raises(nccl_tf.UserError, match=said):
        untrained.fit(x, LABELS, verbose=0)


def test_inputs_are_compared_by_their_names():
    parts = {name: keras.Input((2,), name=name) for name in ("left", "right")}
    logits = keras.layers.Dense(4)(keras.layers.Concatenate()(list(parts.values())))
    learner = compiled(keras.Model(parts, logits))
    floats = np.zeros((COUNT, 2), np.float32)
    with pytest.raises(nccl_tf.UserError, match=r"network's are .*'left', 'right'.* 'right'"):
        learner.fit({"left": floats, "rihgt": floats}, LABELS, verbose=0)
    with pytest.raises(nccl_tf.UserError, match=r"\[n, 3\], but the network's input 'right'"):
        learner.fit({"right": np.zeros((COUNT, 3)), "left": floats}, LABELS, verbose=0)
    learner.fit({"right": floats, "left": floats}, LABELS, verbose=0)


def test_as_many_labels_as_inputs(untrained):
    with pytest.raises(nccl_tf.UserError, match=r"received 5 labels for \[12\] inputs"):
        untrained.accuracy(IMAGES, LABELS[:5], 0)


def test_a_memory_of_another_dtype_is_named_by_every_verb_that_learns():
    learner = compiled(example_shape=IMAGE_SHAPE)
    for verb in ("fit", "train_on_batch"):
        with pytest.raises(nccl_tf.UserError, match='example_dtype="float32"'):
            VERBS[verb](learner, IMAGES / 255.0, LABELS)


def test_another_error_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), explained_inputs(tiny_network(), IMAGES):
        raise ZeroDivisionError


def test_as_many_labels_as_inputs_are_asked_for(untrained):
    for verb in ("fit", "accuracy"):
        with pytest.raises(nccl_tf.UserError, match=r"received 5 labels for \[12\] inputs"):
            VERBS[verb](untrained, IMAGES, LABELS[:5])
