"""Losses and targets together with heads, memories that grow, streams and backups."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(40, 6)).astype(np.float32)
Y = np.arange(40) % 4
HEADS = [[0, 1], [2, 3]]


def one_hot_loss():
    return keras.losses.CategoricalCrossentropy(from_logits=True)


def compiled(cls=nccl_tf.Finetune, outputs=4, *memory, loss=None, metrics=None, **arguments):
    network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(outputs)])
    learner = cls(network, *memory, **arguments)
    # A graph takes longer to build than two steps take without.
    learner.compile(keras.optimizers.SGD(0.1), loss=loss, metrics=metrics, run_eagerly=True)
    return learner


def test_one_hot_rows_outside_the_head_are_refused():
    learner = compiled(heads=HEADS, loss=one_hot_loss())
    with pytest.raises(UserError, match="the label 2 in task 0"):
        learner.fit(X, np.eye(4)[Y], verbose=0)
    with pytest.raises(UserError, match="one-hot rows"):
        learner.fit(X, Y, verbose=0)


def test_what_needs_another_loss_is_told_which():
    learner = compiled()
    with pytest.raises(UserError, match='loss="mse"'):
        learner.fit(X, X[:, 0], verbose=0)
    with pytest.raises(UserError, match="CategoricalCrossentropy"):
        learner.fit(X, np.eye(4, dtype=np.int32)[Y], verbose=0)


def test_a_memory_of_one_hot_rows_grows():
    learner = compiled(
        nccl_tf.ExperienceReplay, 2, nccl_tf.ReservoirMemory(10), loss=one_hot_loss()
    )
    learner.fit(X, np.eye(2)[Y % 2], verbose=0)
    stored = learner.memory.labels.numpy()
    learner.add_classes(2)
    np.testing.assert_array_equal(learner.memory.labels.numpy(), np.pad(stored, ((0, 0), (0, 2))))
    history = learner.fit(X, np.eye(4)[Y], verbose=0).history
    assert np.isfinite(history["loss"]).all()


def text_stream():
    text, labels = np.array(["a b", "c d", "a c", "b d"] * 6), np.arange(24) % 4
    return nccl_tf.stream_from_arrays((text, labels), (text, labels), num_tasks=2)


def text_learner():
    words = keras.layers.TextVectorization(
        vocabulary=["a", "b", "c", "d"], output_sequence_length=3
    )
    inputs = keras.Input((), dtype="string")
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(9, 4)(words(inputs)))
    network = keras.Model(inputs, keras.layers.Dense(4)(pooled))
    learner = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(10))
    learner.compile("sgd", run_eagerly=True)
    return learner


def test_a_memory_of_text_is_backed_up_and_saved(tmp_path):
    keras.utils.set_random_seed(0)
    learner = text_learner()
    result = nccl_tf.learn(learner, text_stream(), backup_dir=tmp_path / "backup", verbose=0)
    keras.utils.set_random_seed(0)
    again = text_learner()
    answer = nccl_tf.learn(again, text_stream(), backup_dir=tmp_path / "backup", verbose=0)
    np.testing.assert_array_equal(answer.matrix, result.matrix)
    learner.save(tmp_path / "text.keras")
    loaded = nccl_tf.load_model(tmp_path / "text.keras")
    for other in (again, loaded):
        stored = learner.memory.inputs.numpy()[:-1]
        assert stored.tolist() == other.memory.inputs.numpy()[:-1].tolist()
        assert stored.tolist().count(b"") < 10


def test_joined_tasks_keep_longer_texts():
    short, long = np.array(["a b", "c d"] * 5), np.array(["a longer text", "another one"] * 5)
    labels = np.arange(10) % 2
    pairs = [((text, labels + 2 * k),) * 2 for k, text in enumerate((short, long))]
    stream = nccl_tf.stream_from_datasets(pairs)
    (batch,) = nccl_tf.JointTask(stream.tasks).train_batches(20)
    assert set(tf.reshape(batch[0]["inputs"], [-1]).numpy()) == {
        text.encode() for text in (*short, *long)
    }
