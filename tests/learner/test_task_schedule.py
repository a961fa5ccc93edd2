"""Learning rates that fall within every task."""

import keras
import numpy as np
import pytest

import nccl_tf
from nccl_tf.errors import UserError
from tests.tiny import tiny_batches, tiny_network


def rates(schedule, count):
    return np.array([float(schedule(step)) for step in range(count)])


def test_cosine_is_that_of_keras_anew_in_every_task():
    found = rates(nccl_tf.TaskSchedule("cosine", [0.2, 0.1], [4, 3]), 9)
    parts = [(0.2, 4), (0.1, 3)]
    by_keras = [
        float(keras.optimizers.schedules.CosineDecay(rate, count)(step))
        for rate, count in parts
        for step in range(count)
    ]
    np.testing.assert_allclose(found[:7], by_keras, rtol=1e-6)
    np.testing.assert_allclose(found[7:], 0, atol=1e-9)  # it stays where the last task ended


def test_piecewise_by_hand():
    schedule = nccl_tf.TaskSchedule("piecewise", 1.0, [4, 8], milestones=(0.75, 0.5), factor=0.5)
    expected = [1, 1, 0.5, 0.25, 1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25]
    assert rates(schedule, 13).tolist() == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "linear"}, "cosine, piecewise"),
        ({"learning_rate": [0.1]}, "1 rates for 2 tasks"),
        ({"learning_rate": float("nan")}, "finite"),
        ({"steps": []}, "steps"),
        ({"steps": [3, 0]}, "steps"),
        ({"milestones": [1.5]}, "fractions"),
        ({"factor": 2}, "from 0 to 1"),
    ],
)
def test_what_is_no_schedule_is_refused(given, said):
    with pytest.raises(UserError, match=said):
        nccl_tf.TaskSchedule(**({"name": "cosine", "learning_rate": 0.1, "steps": [2, 2]} | given))


def test_a_saved_learner_goes_on_with_its_schedule(tmp_path):
    learner = nccl_tf.Finetune(tiny_network())
    learner.compile(keras.optimizers.SGD(nccl_tf.TaskSchedule("cosine", 0.1, [12, 12])))
    learner.fit(tiny_batches(0), verbose=0)
    assert float(learner.optimizer.learning_rate) == pytest.approx(0.1)  # of the second task
    learner.fit(tiny_batches(1).take(6), end_task=False, verbose=0)
    learner.save(tmp_path / "learner.keras")
    loaded = nccl_tf.load_model(tmp_path / "learner.keras")
    assert float(loaded.optimizer.learning_rate) == pytest.approx(0.05)
