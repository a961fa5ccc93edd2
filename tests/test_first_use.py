"""What a new user tries first and gets wrong: each is said in a sentence that helps."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import nccl_tf
from nccl_tf.errors import UserError
from tests.session.test_learn import tiny_stream
from tests.tiny import IMAGE_SHAPE, tiny_network

IMAGES = np.random.default_rng(0).integers(0, 256, (20, *IMAGE_SHAPE), np.uint8)
LABELS = np.arange(20) % 2


def learner():
    made = nccl_tf.Finetune(tiny_network())
    made.compile(keras.optimizers.SGD(0.1))
    return made


def test_learn_wants_a_compiled_learner():
    with pytest.raises(UserError, match="compile"):
        nccl_tf.learn(nccl_tf.Finetune(tiny_network()), tiny_stream())


def test_a_memory_is_written_by_the_learner():
    with pytest.raises(UserError, match="remember"):
        nccl_tf.ReservoirMemory(5, IMAGE_SHAPE).write(IMAGES)


@pytest.mark.parametrize(
    ("name", "known"), [("DERPP", "DERpp"), ("Replay", "ExperienceReplay"), ("nccl", "NCCL")]
)
def test_a_name_that_is_nearly_right_is_suggested(name, known):
    with pytest.raises(AttributeError) as caught:
        getattr(nccl_tf, name)
    assert known in str(caught.value).split("?")[0]


def test_the_title_of_a_method_leads_to_its_name():
    with pytest.raises(UserError, match="'derpp'"):
        nccl_tf.get_method("DER++")


def test_weighted_metrics_are_metrics():
    one, other = nccl_tf.Finetune(tiny_network()), nccl_tf.Finetune(tiny_network())
    one.compile("sgd", metrics=["accuracy"])
    other.compile("sgd", weighted_metrics=["accuracy"])
    weights = np.arange(20.0)
    scores = [m.evaluate(IMAGES, LABELS, sample_weight=weights, verbose=0) for m in (one, other)]
    assert scores[0] == scores[1] and len(scores[0]) == 2


@pytest.mark.parametrize("verb", ["fit", "evaluate"])
def test_examples_without_batches_are_refused_after_a_first_fit_too(verb):
    single = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS))
    made = learner()
    made.fit(IMAGES, LABELS, verbose=0)
    with pytest.raises(UserError, match="batch"):
        getattr(made, verb)(single, verbose=0)


def test_the_fit_after_one_that_failed_says_that_it_goes_on_with_its_task(caplog):
    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("on purpose")

    made = learner()
    with pytest.raises(RuntimeError, match="on purpose"):
        made.fit(IMAGES, LABELS, callbacks=[Fails()], verbose=0)
    # A command that is stopped says how to resume.
    progress = made.progress
    assert int(progress.task) == 0 and bool(progress.task_is_open.numpy())
    assert "end_task" not in caplog.text
    made.fit(IMAGES, LABELS, end_task=False, verbose=0)
    assert int(progress.task) == 0 and bool(progress.task_is_open.numpy())
    assert "end_task" in caplog.text
    caplog.clear()
    with pytest.raises(RuntimeError, match="on purpose"):
        made.fit(IMAGES, LABELS, callbacks=[Fails()], verbose=0)
    made.end_task()
    made.fit(IMAGES, LABELS, verbose=0)
    assert "left open" not in caplog.text and int(made.progress.tasks_ended) == 2
