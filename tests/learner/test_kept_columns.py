"""What a class declares that its memory keeps of an example, and the losses that methods call."""

from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from nccl_tf.conformance.trial import in_float64
from nccl_tf.errors import UserError
from nccl_tf.learner.columns import extras_of, raw_logits, with_logits
from nccl_tf.learner.step import Logits
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network


def largest(logits, batch):
    return tf.reduce_max(logits.masked, axis=-1)


class Keeping(nccl_tf.ExperienceReplay):
    columns: ClassVar = {
        "largest": largest,
        "winner": lambda logits, batch: tf.argmax(logits.raw, axis=-1),
    }


def test_the_entries_of_columns_have_the_form_of_what_they_return():
    columns = with_logits(Keeping.columns, 0.5)
    assert extras_of(columns, 4) == {
        "largest": ((), "float32"), "winner": ((), "int64"), "logits": ((4,), "float32"),
    }  # fmt: skip
    assert extras_of({"logits": raw_logits}, 3, (5, None)) == {"logits": ((5, None, 3), "float32")}
    assert with_logits({}, 0.0) == {}


@pytest.mark.parametrize(
    "column", [lambda logits, batch: tf.reduce_max(logits.raw), lambda logits, batch: logits.raw[0]]
)
def test_a_column_without_an_entry_for_each_example_is_refused(column):
    with pytest.raises(UserError, match="'confidence'"):
        extras_of({"confidence": column}, 4)


@pytest.mark.eager
def test_a_memory_without_shapes_keeps_what_the_class_declares():
    memory = nccl_tf.ReservoirMemory(10)
    learner = Keeping(tiny_network(), memory, memory_batch_size=2)
    learner.compile(keras.optimizers.SGD(0.1))
    (inputs, labels) = next(iter(tiny_batches(0)))[:2]
    logits = learner.network(inputs["inputs"]).numpy()  # of before the update
    learner.fit(tiny_batches(0).take(1), verbose=0)
    stored, kept = memory.inputs.numpy()[: len(labels)], memory.columns
    rows = [np.argmax((inputs["inputs"].numpy() == one).all((1, 2, 3))) for one in stored]
    np.testing.assert_allclose(kept["largest"][: len(rows)], logits.max(1)[rows], rtol=1e-6)
    np.testing.assert_array_equal(kept["winner"][: len(rows)], logits.argmax(1)[rows])


def test_a_memory_with_shapes_needs_them():
    with pytest.raises(UserError, match="without the column 'winner'"):
        extras = {"largest": ((), "float32")}
        Keeping(tiny_network(), nccl_tf.ReservoirMemory(5, IMAGE_SHAPE, extras=extras))


def test_losses_are_means_by_weights():
    """Of -log softmax: log 2 of equal logits, log 4 of -log 3 less, and padding."""
    learner = nccl_tf.ExperienceReplay(tiny_network(), nccl_tf.ReservoirMemory(5))
    learner.compile(keras.optimizers.SGD(0.1))
    off = -1e9
    rows = tf.constant([[0.0, 0.0, off, off], [np.log(3.0), 0.0, off, off], [0.0, 9.0, off, off]])
    logits = Logits(rows, rows)
    weights = tf.constant([1.0, 3.0, 0.0])
    batch = Batch(
        tf.zeros([3, 1]), tf.constant([0, 1, 0], tf.int64), tf.zeros([3], tf.int64), weights
    )
    expected = (np.log(2) + 3 * np.log(4)) / 4
    np.testing.assert_allclose(learner.stream_loss(logits, batch), expected, rtol=1e-6)
    np.testing.assert_allclose(learner.memory_loss(logits, batch), expected, rtol=1e-6)


class Compares(nccl_tf.ReplayLearner):
    columns: ClassVar = {"logits": lambda logits, batch: logits.raw}

    def replay_loss(self, logits, batch, *replays):
        far = tf.reduce_mean(tf.square(logits.memory[0].raw - replays[0].extras["logits"]))
        loss = self.stream_loss(logits.stream, batch) + far
        return loss, {"loss": loss}


@pytest.mark.eager
def test_entries_that_are_read_are_of_the_dtype_of_the_logits():
    """They are stored in float32, and compared with logits in float64 without a cast."""
    with in_float64():
        network = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        learner = Compares(network, nccl_tf.ReservoirMemory(4))
        learner.compile(keras.optimizers.SGD(0.1))
        learner.fit(np.eye(4, 2, dtype="float32"), np.arange(4) % 3, batch_size=2, verbose=0)
    assert int(learner.progress.skipped.numpy()) == 0
    assert learner.memory.columns["logits"].dtype == "float32"


def loss_then(logits, batch):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, logits.masked)


class KeepsLosses(nccl_tf.ExperienceReplay):
    columns: ClassVar = {"loss_then": loss_then}


@pytest.mark.parametrize("has_shapes", [True, pytest.param(False, marks=pytest.mark.eager)])
def test_a_column_sees_labels(has_shapes):
    shapes = (IMAGE_SHAPE,) if has_shapes else ()
    extras = {"loss_then": ((), "float32")} if has_shapes else None
    memory = nccl_tf.ReservoirMemory(10, *shapes, extras=extras)
    learner = KeepsLosses(tiny_network(), memory, memory_batch_size=2)
    learner.compile(keras.optimizers.SGD(0.1))
    inputs, labels = next(iter(tiny_batches(0)))[:2]
    logits = learner.network(inputs["inputs"])  # of before the update
    expected = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    learner.fit(tiny_batches(0).take(1), verbose=0)
    stored = memory.read_all()
    rows = [np.argmax((inputs["inputs"].numpy() == one).all((1, 2, 3))) for one in stored.inputs]
    np.testing.assert_allclose(stored.extras["loss_then"], expected.numpy()[rows], rtol=1e-6)


def test_a_column_of_logits_alone_is_refused():
    with pytest.raises(UserError, match="'logits', which takes"):
        extras_of({"logits": lambda logits: logits.raw}, 4)


class StoresUndeclared(nccl_tf.ExperienceReplay):
    def store(self, batch, logits):
        losses = self.stream_losses(logits, batch)
        self.memory.write(batch._replace(extras={**batch.extras, "loss_then": losses}))


@pytest.mark.eager
@pytest.mark.parametrize("stream_mask", ["all", "seen"])
def test_what_is_stored_without_a_column_is_refused(stream_mask):
    memory = nccl_tf.ReservoirMemory(10)
    learner = StoresUndeclared(tiny_network(), memory, stream_mask=stream_mask)
    learner.compile(keras.optimizers.SGD(0.1))
    with pytest.raises(UserError, match=r"extras \['loss_then'\]"):
        learner.fit(tiny_batches(0).take(1), verbose=0)
