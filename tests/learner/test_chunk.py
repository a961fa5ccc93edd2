"""Whole chunks of steps as one program of XLA: the same learning, the same calls of callbacks."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner import execution
from nccl_tf.learner.options.option import Option
from nccl_tf.records.checkpoints import variables_to_arrays
from tests.tiny import IMAGE_SHAPE, TASK_CLASSES, renewed, tiny_network

K = 5
METHODS = {
    "er": (nccl_tf.ExperienceReplay, {}),
    "nccl": (nccl_tf.NCCL, {"gradients": "two_tapes", "beta_max": 0.1}),
    "ewc": (nccl_tf.EWC, {}),
    "finetune": (nccl_tf.Finetune, {}),
}


def built(method: str, jit_compile, steps: int | None = K, metrics=("accuracy",), **more):
    """A learner in float64, with a ring where the method keeps a memory."""
    learner_class, arguments = METHODS[method]
    keras.config.set_dtype_policy("float64")
    try:
        memory = {}
        if learner_class.memory_class is not None:
            memory = {"memory": nccl_tf.RingMemory(3, TASK_CLASSES, IMAGE_SHAPE)}
            memory["memory_batch_size"] = 4
        network = tiny_network(dtype="float64")
        learner = learner_class(network, heads=TASK_CLASSES, **memory, **arguments, **more)
        learner.compile(
            keras.optimizers.SGD(0.05, momentum=0.5), metrics=list(metrics),
            jit_compile=jit_compile, steps_per_execution=steps,
        )  # fmt: skip
    finally:
        keras.config.set_dtype_policy("float32")
    return learner


def examples(task: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(task)
    labels = random.choice(TASK_CLASSES[task], count)
    return random.integers(0, 256, (count, *IMAGE_SHAPE), dtype=np.uint8), labels


def learned(learner, count: int = 4 * 23 + 3, **arguments):
    """Two tasks of 23 batches of four examples and one of three; the history of the second."""
    for task in range(2):
        history = learner.fit(
            *examples(task, count), batch_size=4, shuffle=False, verbose=0, **arguments
        )
    return history.history


def assert_equal(left, right):
    """Floats to 1e-9 of the largest, integers and stored inputs to the bit."""
    pairs = zip(left.state_variables.items(), right.state_variables.values(), strict=True)
    for (name, mine), other in pairs:
        mine, other = mine.numpy(), other.numpy()
        if mine.dtype.kind == "f":
            atol = 1e-9 * np.max(np.abs(mine), initial=0)
            np.testing.assert_allclose(other, mine, rtol=0, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(other, mine, err_msg=name)


class Seen(keras.callbacks.Callback):
    """Notes the last batch of each call, with its logs."""

    def __init__(self):
        super().__init__()
        self.ends, self.logs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(batch)
        self.logs.append(dict(logs))


@pytest.mark.seconds(25)  # XLA compiles the step twice
@pytest.mark.parametrize("method", ["nccl", "ewc"])
def test_a_chunk_learns_what_single_steps_learn(method):
    """With chunks of five, a rest of three batches and one of another size in each epoch.

    Of a method with a memory and one without; `test_class_weights` holds the same of replay alone.
    """
    alone, together, calls = built(method, False), built(method, True), (Seen(), Seen())
    expected, found = (
        learned(each, epochs=2, callbacks=[seen])
        for each, seen in zip((alone, together), calls, strict=True)
    )
    assert_equal(alone, together)
    plain, compiled = calls
    assert compiled.ends == plain.ends and len(plain.ends) == 20
    for mine, other in zip(plain.logs, compiled.logs, strict=True):
        assert mine.keys() == other.keys()
        np.testing.assert_allclose(list(other.values()), list(mine.values()), rtol=1e-6)
    assert together.execution.under_xla is True
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, err_msg=name)
    assert together.execution.traces == 1  # one trace for chunks, rests and every size of a batch
    assert together.execution.made == 1 + 3  # programs of five steps, of one, of a batch of three
    together.fit(*examples(1, 4 * 22), batch_size=4, verbose=0, task_id=1)
    assert together.execution.made == 1 + 3  # another rest takes the one of one step
    assert alone.execution.made == alone.execution.traces


@pytest.mark.seconds(25)  # XLA compiles the step
def test_a_batch_of_another_size_in_the_middle_loses_no_step():
    """A call goes on after it to its end: of five batches of four and one of three, repeated."""
    alone, together = built("finetune", False, 4), built("finetune", True, 4)
    firsts = [variables_to_arrays(learner.state_variables) for learner in (alone, together)]
    for passes in (2, 3):
        data = tf.data.Dataset.from_tensor_slices(examples(0, 23)).batch(4).repeat(passes)
        calls = Seen(), Seen()
        for learner, first, seen in zip((alone, together), firsts, calls, strict=True):
            renewed(learner, first).fit(data, verbose=0, callbacks=[seen])
        assert calls[0].ends == calls[1].ends
        assert int(together.optimizer.iterations.numpy()) == 6 * passes
        assert_equal(alone, together)


class Sums(Option):
    """Adds up the losses of applied steps, and their numbers before them."""

    def __init__(self, updates):
        self.updates = updates
        self.losses = tf.Variable(0.0, dtype=tf.float64)
        self.before = tf.Variable(0, dtype=tf.int64)

    def before_step(self, batch):
        return self.updates.value

    def after_step(self, batch, step, note):
        self.losses.assign_add(tf.cast(step.logs["loss"], tf.float64))
        self.before.assign_add(tf.cast(note, tf.int64))


@pytest.mark.seconds(16)  # XLA compiles the step
def test_what_stands_around_a_step_is_as_without_xla():
    """Step log, options, decaying rate, class weights, validation, early stopping."""
    found = []
    for jit_compile in (False, True):
        learner = built("ewc", jit_compile, average_weights=0.9, rate_decay=0.5, rate_decay_steps=4)
        log, sums = learner.record_steps(1), Sums(learner.optimizer.iterations)
        learner.add_option(sums)
        stops = keras.callbacks.EarlyStopping("val_loss", patience=0, start_from_epoch=1)
        history = learner.fit(
            *examples(0, 4 * 10), batch_size=4, shuffle=False, verbose=0, epochs=3,
            class_weight={0: 1.0, 1: 2.0, 2: 0.5, 3: 1.5}, callbacks=[stops],
            validation_data=examples(0, 9),
        ).history  # fmt: skip
        found.append((learner, np.array(log.take(0, whole=False)), sums, history))
    (plain, rows, sums, history), (compiled, rows_too, sums_too, history_too) = found
    assert_equal(plain, compiled)
    np.testing.assert_allclose(rows_too, rows, rtol=1e-6)
    np.testing.assert_allclose(sums_too.losses, sums.losses, rtol=1e-6)
    assert int(sums_too.before) == int(sums.before) > 0
    for name, values in history.items():
        np.testing.assert_allclose(history_too[name], values, rtol=1e-6, err_msg=name)


def test_a_bad_batch_within_a_chunk_is_skipped():
    inputs, labels = examples(0, 40)
    inputs = inputs.astype(np.float32)
    inputs[4 * 7] = np.inf
    learners = [nccl_tf.Finetune(tiny_network(input_dtype="float32")) for _ in range(2)]
    for learner, jit_compile in zip(learners, (False, True), strict=True):
        optimizer = keras.optimizers.SGD(0.1, momentum=0.5)
        learner.compile(optimizer, jit_compile=jit_compile, steps_per_execution=K)
        learner.fit(inputs, labels, batch_size=4, shuffle=False, verbose=0)
        assert int(learner.progress.skipped.numpy()) == 1 and int(learner.optimizer.iterations) == 9
    for mine, other in zip(*(each.state_variables.values() for each in learners), strict=True):
        np.testing.assert_allclose(other.numpy(), mine.numpy(), rtol=1e-5, atol=1e-7)


@keras.saving.register_keras_serializable(package="tests")
class OnTheHost(keras.metrics.Mean):
    """A metric that XLA cannot compile; counts its batches."""

    seen = 0

    def update_state(self, y_true, y_pred, sample_weight=None):
        def count(labels):
            type(self).seen += 1
            return np.float32(len(labels))

        size = tf.numpy_function(count, [y_true], tf.float32)
        return super().update_state(tf.ensure_shape(size, []))


def test_steps_that_xla_refuses_run_without_it_and_lose_no_batch(monkeypatch, caplog):
    monkeypatch.setattr(execution, "STEPS_THAT_PAY", 1)
    monkeypatch.setattr(OnTheHost, "seen", 0)
    plain, refused = (
        built("er", jit, metrics=[OnTheHost()], steps=steps)
        for jit, steps in ((False, 1), (None, K))
    )
    learned(plain)
    seen, OnTheHost.seen = OnTheHost.seen, 0
    with caplog.at_level(logging.INFO, "nccl_tf"):
        learned(refused)
    assert OnTheHost.seen == seen > 48 and refused.execution.under_xla is False
    said = [record for record in caplog.records if "XLA" in record.message]
    assert len(said) == 1 and said[0].levelno == logging.INFO
    assert_equal(plain, refused)


def test_what_was_asked_to_compile_and_cannot_names_the_operation():
    learner = built("er", True, metrics=[OnTheHost()])
    with pytest.raises(UserError, match=r"jit_compile=True.*(?i:pyfunc)"):
        learned(learner)
    memory = nccl_tf.RingMemory(3, TASK_CLASSES, IMAGE_SHAPE)
    gem = nccl_tf.GEM(tiny_network(), memory, heads=TASK_CLASSES)
    with pytest.raises(UserError, match="quadratic program"):
        gem.compile(jit_compile=True)


@pytest.mark.parametrize(
    ("asked", "steps", "expected"),
    [(None, 10**7, None), ("auto", 10**7, None), (None, 100, False), (None, None, False),
     (False, 10**7, False), (True, 1, True)],
)  # fmt: skip
def test_the_default_follows_a_rule_of_steps_and_network(asked, steps, expected):
    learner = built("er", asked)
    learner.execution.choose(100, steps)
    assert learner.execution.under_xla is expected
    learner.execution.choose(100, 1)  # the first call decides
    assert learner.execution.under_xla is expected


@pytest.mark.parametrize(
    ("asked", "resumed", "expected"),
    [(None, 7, (None, 7)), (None, 0, (False, 0)), (False, 7, (False, 0)), (True, 0, (True, 100))],
)
def test_a_training_goes_on_as_it_began_where_nothing_else_is_asked_for(asked, resumed, expected):
    learner = built("er", asked, steps=None)
    learner.execution.choose(100, 10**7, resumed=resumed)
    assert (learner.execution.under_xla, learner.execution.per_program) == expected


def test_the_default_leaves_out_what_xla_slows_down_or_does_not_know(monkeypatch):
    convolutions = keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.Conv2D(2, 3), keras.layers.Flatten(),
         keras.layers.Dense(4)]
    )  # fmt: skip
    learner = nccl_tf.Finetune(convolutions)
    learner.compile(keras.optimizers.SGD(0.1))
    learner.execution.choose(100, 10**7)
    assert learner.execution.under_xla is False
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    learner.compile(keras.optimizers.SGD(0.1))
    learner.execution.choose(100, 1)
    assert learner.execution.under_xla is None
    memory = nccl_tf.RingMemory(3, TASK_CLASSES, IMAGE_SHAPE)
    gem = nccl_tf.GEM(tiny_network(), memory, heads=TASK_CLASSES)
    gem.compile(keras.optimizers.SGD(0.1))
    gem.execution.choose(100, 10**7)
    assert gem.execution.under_xla is False


def test_tasks_of_other_lengths_have_the_chunks_of_the_first():
    learner = built("er", True, steps=None)
    learner.execution.choose(60, 600)
    assert learner.execution.per_program == 60
    for batches in (60, 7, 1000):
        learner.execution.set_per_call(batches, None, [])
        assert learner.steps_per_execution == 60
    learner.execution.set_per_call(100, 50, [])  # Keras runs past a number that it does not divide
    assert learner.steps_per_execution == 50


@keras.saving.register_keras_serializable(package="tests")
class OwnStep(nccl_tf.Finetune):
    """Adds a log to those of the metrics."""

    def train_step(self, data):
        logs = super().train_step(data)
        return {**logs, "size": tf.cast(tf.shape(data[1])[0], tf.float32)}


@pytest.mark.parametrize("jit_compile", [False, True])
def test_logs_of_a_step_of_ones_own_are_kept(jit_compile):
    learner = OwnStep(tiny_network())
    learner.compile(keras.optimizers.SGD(0.1), jit_compile=jit_compile, steps_per_execution=3)
    seen = Seen()
    learner.fit(*examples(0, 22), batch_size=4, shuffle=False, verbose=0, callbacks=[seen])
    assert [logs["size"] for logs in seen.logs] == [4, 2]
    assert set(seen.logs[0]) == {"loss", "size"}


def test_single_batches_and_eager_steps_are_keras_s():
    learner = built("er", True)
    learner.train_on_batch(*examples(0, 4), task_id=0)
    eager = nccl_tf.Finetune(tiny_network())
    eager.compile(keras.optimizers.SGD(0.1), jit_compile=True, run_eagerly=True)
    eager.fit(*examples(0, 8), batch_size=4, verbose=0)
    assert int(learner.optimizer.iterations) == 1 and int(eager.optimizer.iterations) == 2
