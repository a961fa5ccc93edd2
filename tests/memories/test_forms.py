"""What a memory holds of an example: columns that are named, or taken from the first `fit`."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.kinds import MEMORIES
from tests.tiny import TASK_CLASSES

BYTES, TOKENS = np.arange(15, dtype=np.uint8).reshape(3, 5), np.arange(6).reshape(3, 2)


def batch(labels=(0, 1, 2)) -> Batch:
    inputs = {"bytes": tf.constant(BYTES), "tokens": tf.constant(TOKENS)}
    return Batch(inputs, tf.constant(labels), tf.zeros(3, tf.int64), tf.ones(3))


def unbuilt(kind: str):
    size = {"slots": 2} if kind in ("ring", "exemplars") else {}
    return MEMORIES[kind].build(
        capacity=4, task_classes=TASK_CLASSES, example_shape=None, seed=1, rule="exact", **size
    )


@pytest.mark.parametrize("kind", MEMORIES)
def test_every_kind_is_allocated_for_a_batch(kind):
    memory = unbuilt(kind)
    assert not memory.variables and memory.example_shape is None
    one = batch()._replace(inputs=tf.constant(BYTES))
    memory.build_for(one)
    again = type(memory).from_config(memory.get_config())
    assert memory.example_shape == again.example_shape == (5,)
    assert [v.path for v in memory.variables] and len(memory.variables) == len(again.variables)
    for left, right in zip(memory.variables, again.variables, strict=True):
        assert (left.name, left.shape, left.dtype) == (right.name, right.shape, right.dtype)


@pytest.mark.parametrize("kind", ["ring", "past_reservoir"])
def test_one_that_is_not_allocated_is_copied_and_not_read(kind):
    for memory in (unbuilt(kind), copy.deepcopy(unbuilt(kind))):
        again = type(memory).from_config(memory.get_config())
        assert again.get_config() == memory.get_config()
        for use in (
            lambda: memory.read(2),  # noqa: B023
            lambda: memory.upcoming(2),  # noqa: B023
            lambda: memory.write(batch()),  # noqa: B023
            lambda: memory.inputs,  # noqa: B023
        ):
            with pytest.raises(UserError, match="has seen no fit"):
                use()


@pytest.mark.parametrize("packs", [False, True])
def test_a_column_for_each_input(packs, monkeypatch):
    if packs:  # as under MultiWorkerMirroredStrategy
        monkeypatch.setattr("nccl_tf.memories.forms.needs_packing", lambda dtype: dtype == "uint8")
    memory = nccl_tf.ReservoirMemory(4)
    memory.build_for(batch())
    memory.write(batch())
    read = memory.rows(tf.constant([2, 0]), tf.ones(2))
    np.testing.assert_array_equal(read.inputs["bytes"], BYTES[[2, 0]])
    np.testing.assert_array_equal(read.inputs["tokens"], TOKENS[[2, 0]])
    store = {}
    memory.save_variables(store, "memory_")
    np.testing.assert_array_equal(store["memory_inputs_0"][:3], BYTES)
    loaded = nccl_tf.ReservoirMemory.from_config(memory.get_config())
    loaded.load_variables(store, "memory_")
    assert not store
    np.testing.assert_array_equal(
        loaded.rows(tf.constant([1]), tf.ones(1)).inputs["bytes"], BYTES[1:2]
    )


def test_shapes_of_several_inputs_are_named():
    memory = nccl_tf.ReservoirMemory(4, ((5,), [2]), ("uint8", "int64"))
    both = batch()
    memory.write(both._replace(inputs=tuple(both.inputs.values())))
    assert memory.example_shape == ((5,), (2,))
    assert nccl_tf.ReservoirMemory.from_config(memory.get_config()).example_dtype == (
        "uint8",
        "int64",
    )
    with pytest.raises(nccl_tf.UserError, match="feed the inputs that it was built for"):
        memory.write(both)


def test_labels_of_another_form():
    memory = nccl_tf.ReservoirMemory(4, (5,), label_shape=(2,), label_dtype="float32")
    labels = tf.constant([[0.5, 1.0], [2.0, 3.0], [4.0, 5.0]])
    one = batch()._replace(inputs=tf.constant(BYTES), labels=labels)
    memory.write(one)
    np.testing.assert_array_equal(memory.rows(tf.constant([1]), tf.ones(1)).labels, labels[1:2])
    config = nccl_tf.ReservoirMemory.from_config(memory.get_config()).get_config()
    assert (config["label_shape"], config["label_dtype"]) == ([2], "float32")
    for wrong in (labels[:, :1], tf.cast(labels, tf.int64)):
        with pytest.raises(nccl_tf.UserError, match=r"labels, but|labels of shape"):
            memory.write(one._replace(labels=wrong))


@pytest.mark.nightly
def test_written_and_read_under_xla():
    memory = nccl_tf.ReservoirMemory(4)
    memory.build_for(batch())

    @tf.function(jit_compile=True, autograph=False)
    def step():
        memory.write(batch())
        return memory.read(2).inputs["bytes"]

    assert {tuple(row) for row in step().numpy()} <= {tuple(row) for row in BYTES}


def test_slots_are_chosen_by_extras_in_the_dtype_of_their_column():
    """Those of a float64 network are float64, the column is float32."""

    class Surer(nccl_tf.ReservoirMemory):
        def slots_for(self, batch):
            better = batch.extras["score"] > self.columns["score"].value[:3]
            return tf.where(better, tf.range(3, dtype=tf.int64), self.capacity)

        def readable_count(self):
            return tf.constant(3, tf.int64)

    memory = Surer(3, (), "int64", extras={"score": ((), "float32")})
    for scores in ([0.1, 0.5, 0.3], [0.2, 0.4, 0.3]):
        extras = {"score": tf.constant(scores, tf.float64)}
        memory.write(batch()._replace(inputs=tf.range(3, dtype=tf.int64), extras=extras))
    assert memory.read_all().extras["score"].tolist() == np.float32([0.2, 0.5, 0.3]).tolist()


def test_a_ring_takes_the_classes_of_the_heads_or_asks():
    memory = nccl_tf.RingMemory(2)
    with pytest.raises(UserError, match="pass task_classes"):
        memory.build_for(batch())
    memory.build_for(batch(), task_classes=TASK_CLASSES)
    assert memory.capacity == 8 and memory.task_classes == [[0, 1], [2, 3]]


def test_a_learner_is_saved_before_its_first_fit(tmp_path):
    network = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    learner = nccl_tf.NCCL(network, nccl_tf.ReservoirMemory(4))
    learner.compile("sgd")
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert not loaded.memory.is_allocated
    learner.end_task()


def test_a_saved_memory_of_another_size_is_named():
    """Both sizes, before anything is loaded."""
    store = {}
    memory = nccl_tf.ReservoirMemory(20, (6,), "float32")
    memory.save_variables(store, "")
    with pytest.raises(UserError, match=r"\(21, 6\) .* 30 slots"):
        nccl_tf.ReservoirMemory(30, (6,), "float32").load_variables(store, "")


@pytest.mark.parametrize("name", ["seen", "draws"])
def test_a_saved_memory_with_a_count_below_0_is_refused(name):
    """Its first write would fail in TensorFlow."""
    store = {}
    memory = nccl_tf.ReservoirMemory(20, (6,), "float32")
    memory.save_variables(store, "")
    with pytest.raises(UserError, match=f"{name} is -1"):
        memory.load_variables({**store, name: np.int64(-1)}, "")
    memory.load_variables({**store, name: np.int64(7)}, "")
    assert int(getattr(memory, name).numpy()) == 7
