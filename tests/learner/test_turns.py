"""Threads that use one learner: they read together, wait for one that writes, or are told."""

import pickle
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.learner.execution import Execution
from nccl_tf.learner.turns import Turns

PATIENCE = 60
X = np.random.default_rng(0).normal(size=(60, 4)).astype("float32")
Y = np.arange(60) % 2


class Other(threading.Thread):
    """A thread that does something; what it raises is raised where it is waited for."""

    def __init__(self, verb):
        super().__init__(daemon=True)
        self.verb, self.error = verb, None
        self.start()

    def run(self):
        try:
            self.verb()
        except Exception as error:
            self.error = error

    def ended(self):
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error

    def waits(self):
        self.join(0.1)
        return self.is_alive()


class Held(keras.callbacks.Callback):
    """Holds a prediction in its first batch, or at the end of it."""

    def __init__(self):
        super().__init__()
        self.inside, self.release = threading.Event(), threading.Event()

    def on_predict_batch_begin(self, batch, logs=None):
        self.inside.set()
        assert self.release.wait(PATIENCE)


class HeldAtItsEnd(Held):
    def on_predict_batch_begin(self, batch, logs=None):
        pass

    def on_predict_batch_end(self, batch, logs=None):
        super().on_predict_batch_begin(batch)


class Does(keras.callbacks.Callback):
    """Does something when a training or its first call of the graph begins or ends."""

    def __init__(self, **verbs):
        super().__init__()
        self.verbs = verbs

    def on_epoch_begin(self, epoch, logs=None):
        self.verbs.pop("epoch", lambda: None)()

    def on_train_batch_end(self, batch, logs=None):
        self.verbs.pop("batch", lambda: None)()


def learner(kind=nccl_tf.Finetune, **options):
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    made = kind(network, **options)
    made.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"], steps_per_execution=5)
    return made


def trained(model, *callbacks):
    return model.fit(X, Y, batch_size=4, shuffle=False, verbose=0, callbacks=list(callbacks))


def test_who_reads_is_together_and_who_writes_is_alone():
    turns = Turns()

    def turn(alone):
        with turns.take(alone), turns.take(alone):
            pass

    with turns.take(), turns.take():
        Other(lambda: turn(False)).ended()
        writes = Other(lambda: turn(True))
        assert writes.waits()
        reads = Other(lambda: turn(False))  # comes after the one that writes
        assert reads.waits()
        with turns.take():
            pass
    writes.ended()
    reads.ended()
    with turns.take(alone=True), turns.take():
        reads = Other(lambda: turn(False))
        assert reads.waits()
    reads.ended()


def test_two_that_are_inside_write_in_turn():
    turns, both = Turns(), threading.Barrier(2)

    def turn():
        with turns.take():
            both.wait(PATIENCE)
            with turns.take(alone=True):
                pass

    threads = Other(turn), Other(turn)
    for thread in threads:
        thread.ended()


def test_a_verb_of_another_thread_is_refused_until_the_first_one_ends():
    turns = Turns()

    def begin(name):
        with turns.verb(name):
            pass

    with turns.verb("fit"), turns.verb("evaluate"):
        pass
    refused = pytest.raises(UserError, match="evaluate while another thread runs fit")
    with turns.verb("fit"), refused:
        Other(lambda: begin("evaluate")).ended()
    Other(lambda: begin("evaluate")).ended()


def test_the_steps_of_a_call_are_those_of_its_thread():
    execution, seen = Execution(), []
    execution.steps = 5
    with execution.calls_of(1):
        Other(lambda: seen.append(execution.steps)).ended()
        with execution.calls_of(2):
            seen.append(execution.steps)
        seen.append(execution.steps)
        execution.steps = 7
    assert [*seen, execution.steps] == [5, 2, 1, 7]


def test_a_prediction_of_another_thread_takes_no_step_from_a_fit():
    """It is in its first batch while the step is traced, and until the first call has ended."""
    alone, model, held, threads = learner(), learner(), Held(), []

    def predict():
        threads.append(Other(lambda: model.predict(X, 30, callbacks=[held])))
        assert held.inside.wait(PATIENCE)

    trained(alone)
    trained(model, Does(epoch=predict, batch=held.release.set))
    threads[0].ended()
    assert int(model.optimizer.iterations) == 15 and model.steps_per_execution == 5
    for mine, other in zip(alone.variables, model.variables, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_wrong_task_of_a_prediction_is_no_matter_of_a_fit():
    model, held, threads = learner(heads=[[0, 1], [0, 1]]), HeldAtItsEnd(), []
    inputs = {"inputs": X, "task": np.full(60, 7)}
    data = tf.data.Dataset.from_tensor_slices(inputs).batch(30)

    def predict():
        threads.append(Other(lambda: model.predict(data, callbacks=[held])))
        assert held.inside.wait(PATIENCE)

    model.fit(X, Y, verbose=0, callbacks=[Does(epoch=predict)], end_task=False)
    held.release.set()
    with pytest.raises(UserError, match="task 7"):
        threads[0].ended()


class Nothing(nccl_tf.Option):
    """Takes part in steps and changes nothing."""


def test_a_prediction_goes_on_when_the_step_changes():
    model, held, found = learner(), Held(), []
    thread = Other(lambda: found.append(model.predict(X, 30, callbacks=[held])))
    assert held.inside.wait(PATIENCE)
    model.add_option(Nothing())
    held.release.set()
    thread.ended()
    np.testing.assert_array_equal(found[0], model.predict(X, 30, verbose=0))


def test_a_step_waits_for_a_prediction_by_averaged_weights():
    """Which the network holds meanwhile; they are not trained on."""
    models = learner(average_weights=0.9), learner(average_weights=0.9)
    for model in models:
        trained(model)
    model, held = models[1], Held()
    predicts = Other(lambda: model.predict(X, 30, callbacks=[held]))
    assert held.inside.wait(PATIENCE)
    trains = Other(lambda: trained(model))
    assert trains.waits()
    held.release.set()
    predicts.ended()
    trains.ended()
    trained(models[0])
    for mine, other in zip(models[0].variables, model.variables, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_what_another_thread_may_do_while_a_learner_trains(tmp_path):
    """As the page on threads has it."""
    model, told = learner(nccl_tf.ExperienceReplay, memory=nccl_tf.ReservoirMemory(8)), []
    trained(model)
    weights = tmp_path / "saved.weights.h5"
    model.save_weights(weights)

    def others():
        for verb in (
            lambda: model.evaluate(X, Y, verbose=0), lambda: model.test_on_batch(X, Y),
            lambda: trained(model), lambda: model.train_on_batch(X, Y), model.end_task,
            lambda: model.begin_task(1), lambda: model.remember(X, Y),
            lambda: model.add_classes(1), lambda: model.compile("sgd"),
            lambda: model.load_weights(weights), lambda: model.load_adapters(tmp_path / "a.npz"),
        ):  # fmt: skip
            with pytest.raises(UserError, match="while another thread runs fit") as error:
                Other(verb).ended()
            told.append(str(error.value).split()[1])
        for allowed in (
            lambda: model.predict(X, verbose=0), lambda: model.predict_on_batch(X),
            lambda: model.accuracy(X, Y), lambda: model.confusion(X, Y), model.serving_model,
            lambda: model.save_weights(weights), lambda: model.save(tmp_path / "learner.keras"),
            lambda: pickle.dumps(model),
        ):  # fmt: skip
            Other(allowed).ended()

    trained(model, Does(batch=others))
    assert told == [
        "evaluate", "test_on_batch", "fit", "train_on_batch", "end_task", "begin_task", "remember",
        "add_classes", "compile", "load_weights", "load_adapters",
    ]  # fmt: skip
    assert int(model.optimizer.iterations) == 30
    nccl_tf.load_model(tmp_path / "learner.keras")
