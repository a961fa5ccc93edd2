"""What an option sees of a learner, and how the learner takes, refuses and replaces one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.options.average import AverageWeights
from nccl_tf.learner.options.dark_replay import DarkReplay
from nccl_tf.learner.options.option import config_of
from nccl_tf.learner.options.rate_decay import RateDecay
from nccl_tf.learner.options.stream_mask import StreamMask
from tests.tiny import IMAGE_SHAPE, tiny_batches, tiny_network


class Watching(nccl_tf.Option):
    """Notes when it is called, in eager steps."""

    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def note(self, what):
        self.calls.append((self.name, what))

    def stream_batch(self, batch):
        self.note("stream_batch")
        return batch._replace(weights=2 * batch.weights)

    def before_step(self, batch):
        self.note("before_step")
        return tf.reduce_max(batch.weights)

    def loss(self, losses, logits, replay):
        self.note("loss")
        return losses

    def after_step(self, batch, step, note):
        assert float(note) == 2.0 and float(step.logs["loss"]) > 0
        self.note("after_step")

    def on_task_begin(self, task_id):
        self.note(f"begins {task_id}")

    def on_task_end(self, task_id):
        self.note(f"ends {task_id}")


class Outer(Watching):
    def before_step(self, batch):
        self.note("before_step")
        return tf.constant(2.0)

    def stream_batch(self, batch):
        return batch


def made(**arguments):
    shape = None if "dark" in arguments else IMAGE_SHAPE
    memory = nccl_tf.ReservoirMemory(6, shape)
    learner = nccl_tf.ExperienceReplay(tiny_network(), memory, memory_batch_size=2, **arguments)
    learner.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    return learner


@pytest.mark.eager
def test_an_option_sees_steps_and_tasks_the_later_one_around_the_others():
    learner, calls = made(), []
    learner.fit(tiny_batches(0).take(1), verbose=0)
    learner.add_option(Watching("inner", calls))
    learner.add_option(Outer("outer", calls))
    learner.fit(tiny_batches(1).take(1), verbose=0)
    assert calls == [
        ("outer", "begins 1"), ("inner", "begins 1"), ("inner", "stream_batch"),
        ("outer", "before_step"), ("inner", "before_step"), ("outer", "loss"), ("inner", "loss"),
        ("inner", "after_step"), ("outer", "after_step"), ("outer", "ends 1"), ("inner", "ends 1"),
    ]  # fmt: skip


def test_a_learner_has_the_options_of_its_arguments_and_no_others():
    assert list(made().options) == []
    learner = made(dark=0.5, stream_mask="seen", rate_decay=0.5, average_weights=0.9)
    assert {type(option) for option in learner.options} == {
        DarkReplay, StreamMask, RateDecay, AverageWeights,
    }  # fmt: skip
    assert config_of(learner.options) == {
        "dark": 0.5, "replay_labels": 1.0, "stream_mask": "seen", "rate_decay": 0.5,
        "rate_decay_steps": None, "average_weights": 0.9,
    }  # fmt: skip
    assert set(learner.get_config()) >= set(config_of(learner.options)) - {
        "replay_labels", "rate_decay_steps",
    }  # fmt: skip


def test_one_option_of_a_class():
    learner = made()
    first, second = Watching("one", []), Watching("two", [])
    learner.add_option(first)
    learner.add_option(second)
    assert list(learner.options) == [second] and learner.option(Watching) is second


def test_what_is_no_option_is_refused():
    for given in (Watching, "dark"):
        with pytest.raises(UserError, match="as an option"):
            made().add_option(given)


def test_an_option_that_has_no_column_in_the_memory_or_no_meaning_is_refused():
    class Keeping(nccl_tf.Option):
        columns = {"largest": lambda logits, batch: tf.reduce_max(logits.raw, axis=1)}  # noqa: RUF012

    with pytest.raises(UserError, match="without the column 'largest'"):
        made().add_option(Keeping())
    slda = nccl_tf.SLDA(tiny_network())
    with pytest.raises(UserError, match=r"average_weights=0\.9, but SLDA"):
        slda.add_option(AverageWeights(0.9, slda.network, slda.state, slda.execution.turns))


def test_an_option_of_one_device_is_refused_on_replicas():
    devices = tf.config.list_logical_devices("CPU")
    with tf.distribute.MirroredStrategy([device.name for device in devices[:1]]).scope():
        learner = nccl_tf.Finetune(tiny_network())
        with pytest.raises(UserError, match="rate_decay"):
            learner.add_option(RateDecay(0.5, None, learner.progress.tasks_ended))


@pytest.mark.parametrize("by_tasks", [True, False])
def test_the_rate_is_put_back_after_every_step(by_tasks):
    learner = made(rate_decay=0.5, rate_decay_steps=None if by_tasks else 1)
    learner.fit(tiny_batches(0, 10), verbose=0)
    assert np.float32(learner.optimizer.learning_rate) == np.float32(0.1)


class Counting(nccl_tf.Option):
    """Counts steps in a variable that is saved with the learner."""

    def __init__(self, learner):
        self.steps = learner.state("steps", (), "int64")

    def after_step(self, batch, step, note):
        self.steps.value.assign_add(1)


@keras.saving.register_keras_serializable(package="tests")
class Counted(nccl_tf.Finetune):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.add_option(Counting(self))


def counted(learner):
    learner.compile(keras.optimizers.SGD(0.1))
    learner.fit(tiny_batches(0, 10), verbose=0)
    return learner


def test_a_file_keeps_an_option_that_the_constructor_adds(tmp_path):
    learner = counted(Counted(tiny_network()))
    learner.save(tmp_path / "learner.keras")
    steps = nccl_tf.load_model(tmp_path / "learner.keras").option(Counting).steps
    assert int(steps) == int(learner.option(Counting).steps) > 0


def test_a_file_with_state_of_an_option_that_was_added_later_says_where_it_belongs(tmp_path):
    def with_option():
        learner = nccl_tf.Finetune(tiny_network())
        learner.add_option(Counting(learner))
        return learner

    learner = counted(with_option())
    learner.save(tmp_path / "learner.keras")
    with pytest.raises(UserError, match="load_weights"):
        nccl_tf.load_model(tmp_path / "learner.keras")
    loaded = with_option()
    loaded.load_weights(tmp_path / "learner.keras")
    assert int(loaded.option(Counting).steps) == int(learner.option(Counting).steps) > 0
