"""`learn` with weights of classes: those of a loop of fits, in backups and in records too."""

import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records.record import read_record
from tests.session.test_backup import Kill, Killed, learn, state
from tests.session.test_learn import again, arrays, assert_equal, tiny_stream, weights

FACTORS = {0: 4.0, 3: 0.5}


def test_it_is_what_a_loop_over_the_tasks_does():
    model, looped = again(), None
    nccl_tf.learn(model, tiny_stream(), batch_size=5, epochs=2, class_weight=FACTORS, verbose=0)
    found, looped = weights(model), again()
    for task in tiny_stream():
        looped.fit(task, batch_size=5, epochs=2, class_weight=FACTORS, verbose=0)
    assert_equal(weights(looped), found)
    nccl_tf.learn(plain := again(), tiny_stream(), batch_size=5, epochs=2, verbose=0)
    assert any((one != other).any() for one, other in zip(weights(plain), found, strict=True))


def test_classes_by_the_names_of_the_stream():
    images, labels = arrays(44, 0)
    names = np.array(["ant", "bee", "cat", "dog"])[labels]
    named = nccl_tf.stream_from_arrays((images, names), (images, names), num_tasks=2)
    found = []
    for class_weight in ({"ant": 4.0, "dog": 0.5}, FACTORS):
        nccl_tf.learn(model := again(), named, class_weight=class_weight, verbose=0)
        found.append(weights(model))
    assert_equal(*found)
    with pytest.raises(UserError, match=r"the class 'cow', .* or names such as 'ant'"):
        nccl_tf.learn(again(), named, class_weight={"cow": 2.0}, verbose=0)


def test_a_call_that_resumes_has_the_same_bits(tmp_path):
    expected = state(learn(None, class_weight=FACTORS)[0])
    for calls in (2, 5):
        with pytest.raises(Killed):
            learn(tmp_path, Kill(calls), class_weight=FACTORS)
    for other in ({0: 4.0}, None):
        with pytest.raises(UserError, match="another model, stream or setting"):
            learn(tmp_path, Kill(0), class_weight=other)
    model, _ = learn(tmp_path, Kill(0), class_weight=FACTORS)
    assert_equal(state(model), expected)


def test_a_record_has_them_among_its_settings(tmp_path):
    given = ({}, {"class_weight": {1: 1.0}}, {"class_weight": {0: 3.0, 1: 1.0}})
    results = [nccl_tf.learn(again(), tiny_stream(), verbose=0, **each) for each in given]
    records = [read_record(each.save(tmp_path / str(i))) for i, each in enumerate(results)]
    hashes = [record.settings_hash for record in records]
    assert hashes[0] == hashes[1] != hashes[2]
    assert records[2].settings.hyperparameters["class_weight_0"] == 3.0
