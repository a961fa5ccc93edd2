"""What a model knows of tasks: their beginnings and ends, heads and masks, accuracy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network


def nccl(**kwargs) -> nccl_tf.NCCL:
    memory = nccl_tf.RingMemory(2, TASK_CLASSES, IMAGE_SHAPE)
    learner = nccl_tf.NCCL(tiny_network(), memory, **kwargs)
    learner.compile(keras.optimizers.SGD(0.25), metrics=["accuracy"])
    return learner


def test_beginning_and_ending_are_idempotent():
    events = []

    class Watcher(nccl_tf.Finetune):
        def on_task_begin(self, task_id):
            events.append(("begin", task_id))

        def on_task_end(self, task_id):
            events.append(("end", task_id))

    learner = Watcher(tiny_network())
    learner.end_task()
    learner.begin_task(0), learner.begin_task(0)
    learner.end_task(), learner.end_task()
    assert events == [("begin", 0), ("end", 0)]


def test_a_second_open_task_and_a_missing_head_are_refused():
    learner = nccl(heads=TASK_CLASSES)
    learner.begin_task(0)
    with pytest.raises(ValueError, match="while task 0 is open"):
        learner.begin_task(1)
    learner.end_task()
    with pytest.raises(ValueError, match="heads for 2 tasks"):
        learner.begin_task(2)


def test_single_head_predicts_only_classes_seen_so_far():
    learner = nccl()
    images = np.zeros((50, *IMAGE_SHAPE), np.uint8)
    learner.network.layers[-1].bias.assign([0.0, 0.0, 9.0, 9.0])
    learner.optimizer.learning_rate = 1e-6
    learner.fit(tiny_batches(0), verbose=0)
    assert set(np.argmax(learner.predict(images, verbose=0), 1)) <= {0, 1}


def test_multi_head_predicts_within_the_task():
    learner = nccl(heads=TASK_CLASSES)
    images = np.zeros((3, *IMAGE_SHAPE), np.uint8)
    inputs = {"inputs": images, "task": np.array([0, 1, 1], np.int32)}
    logits = learner.predict(inputs, verbose=0)
    assert (logits[0, 2:] == -1e9).all() and (logits[1:, :2] == -1e9).all()
    assert (np.abs(logits[0, :2]) < 1e3).all()


def test_union_mask_lets_the_tasks_of_a_batch_compete():
    own, union = nccl(heads=TASK_CLASSES), nccl(heads=TASK_CLASSES, mask="union")
    logits, tasks = tf.ones([2, 4]), tf.constant([0, 1])
    assert (own.heads.masked(logits, tasks).numpy() == -1e9).sum() == 4
    assert (union.heads.masked(logits, tasks).numpy() == 1).all()
    assert (union.heads.masked(logits, tasks, tf.constant([1.0, 0.0])).numpy()[:, 2:] == -1e9).all()


class Keeping(nccl_tf.Finetune):
    """Reads a state of its own whenever it is called."""

    def __init__(self, network):
        super().__init__(network)
        self.kept = self.state("kept", (), "float32", 1 / 3)

    def outputs(self, inputs, tasks, training):
        self.read = self.kept.value
        return super().outputs(inputs, tasks, training)


def test_a_state_is_read_in_its_own_precision():
    """Not in the low one of the policy, as weights are."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        learner = Keeping(tiny_network(dtype="mixed_bfloat16"))
    finally:
        keras.config.set_dtype_policy("float32")
    assert learner.compute_dtype == "bfloat16"
    learner(np.zeros((1, *IMAGE_SHAPE), np.uint8))
    assert learner.read.dtype == "float32"
