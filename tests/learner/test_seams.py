"""Every seam of a method, overridden in a subclass from outside, holds on every path."""

import keras
import pytest
import tensorflow as tf

from nccl_tf import NCCL, ExperienceReplay, Memory, RingMemory, TwoGradientLearner
from nccl_tf.errors import UserError
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, tiny_batches, tiny_network

SEAMS = (
    "stream_losses", "memory_losses", "outputs", "masked", "forward_all", "regularization", "learn",
    "update", "train_step", "apply_step", "apply", "after_step", "store", "on_task_begin",
    "on_task_end",
)  # fmt: skip
BY_METHOD = {
    ExperienceReplay: (*SEAMS, "training_loss", "replay", "replay_loss"),
    NCCL: (*SEAMS, "training_loss", "replay", "combine", "step_sizes"),
}


def trained(method, steps, memory=None):
    ring = memory or RingMemory(3, TASK_CLASSES, IMAGE_SHAPE)
    learner = method(tiny_network(), ring, memory_batch_size=4)
    learner.compile(keras.optimizers.SGD(0.1), steps_per_execution=steps)
    for task in (0, 1):
        learner.fit(tiny_batches(task, count=30), verbose=0)
    return learner


def noting(method, seam, calls):
    """The method's own seam, which notes that it has been called."""

    def call(self, *args, **kwargs):
        calls.add(seam)
        return getattr(method, seam)(self, *args, **kwargs)

    return call


@pytest.mark.parametrize("method", BY_METHOD)
def test_every_overridden_seam_is_called(method):
    calls = set()
    seams = {seam: noting(method, seam, calls) for seam in BY_METHOD[method]}
    trained(type("Outside", (method,), seams), 3)
    assert calls == set(seams)


def test_a_log_without_a_name_is_refused():
    def combine(self, pair):
        return pair.stream, {"mine": 1.0}

    with pytest.raises(UserError, match=r"the logs \['mine'\] beside"):
        trained(type("Outside", (NCCL,), {"combine": combine}), 1)


def test_what_a_subclass_has_to_define_is_named():
    with pytest.raises(NotImplementedError, match=r"Outside has no rule: define step_sizes"):
        trained(type("Outside", (TwoGradientLearner,), {"log_names": ("loss",)}), 1)
    with pytest.raises(NotImplementedError, match=r"Memory is no whole memory: define"):
        trained(ExperienceReplay, 1, Memory(8, IMAGE_SHAPE))


@pytest.mark.parametrize("calls_super", [False, True])
def test_a_memory_is_told_once_of_the_end_of_a_task_before_the_method_is(calls_super):
    ended, read = [], []

    class Ring(RingMemory):
        def close_task(self, task_id):
            super().close_task(task_id)
            ended.append(int(task_id))

    class Outside(ExperienceReplay):
        def on_task_end(self, task_id):
            if calls_super:
                super().on_task_end(task_id)
            read.append(set(self.memory.read_all().tasks))

    trained(Outside, 1, Ring(3, TASK_CLASSES, IMAGE_SHAPE))
    assert ended == [0, 1]
    assert read == [{0}, {0, 1}]


@pytest.mark.parametrize("change", [lambda x: x[:, None], lambda x: tf.reduce_mean(x)])
@pytest.mark.parametrize("method", BY_METHOD)
@pytest.mark.parametrize("seam", ["stream_losses", "memory_losses"])
def test_losses_that_are_not_one_for_each_example_are_refused(method, seam, change):
    def losses(self, logits, batch):
        return change(getattr(method, seam)(self, logits, batch))

    with pytest.raises(UserError, match="expected a loss for each example"):
        trained(type("Outside", (method,), {seam: losses}), 1)


def test_state_in_int32_is_refused():
    class Outside(ExperienceReplay):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.steps = self.state("steps", (), "int32")

    with pytest.raises(UserError, match=r"int32 .* 'steps'.* expected int64"):
        trained(Outside, 1)
