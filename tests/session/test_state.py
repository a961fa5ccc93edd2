"""Checkpoints within a task: when they are taken, and that a stop has written one."""

from types import SimpleNamespace

import pytest

from nccl_tf.session.state import Checkpoints, Place


class Stop(Exception):
    pass


def callback(saves, *, stops_after=10**9, every=1e9):
    """Of a task of three epochs of 10 batches, which resumes in the second one."""
    looks, now = iter(range(10**6)), iter(range(10**6))
    made = Checkpoints(
        SimpleNamespace(save=saves.append), Place(2, 1, 3), 10, every,
        lambda: Stop() if next(looks) >= stops_after else None, lambda: next(now),
    )  # fmt: skip
    made.set_model(SimpleNamespace(stop_training=False))
    made.set_params({"epochs": 3})
    return made


def train(made):
    """In calls of two batches, from the fourth batch of the second epoch."""
    for epoch, calls in ((1, (1, 3, 5, 6)), (2, (1, 3, 5, 7, 9))):
        made.on_epoch_begin(epoch)
        for batch in calls:
            made.on_train_batch_end(batch)
        made.on_epoch_end(epoch)


PLACES = [
    *(Place(2, 1, step) for step in (5, 7, 9)), Place(2, 2, 0),
    *(Place(2, 2, step) for step in (2, 4, 6, 8)),
]  # fmt: skip


def test_places_name_the_batches_that_are_done():
    """The last one of an epoch is left to its end, and the last epoch to the end of the task."""
    saves = []
    train(callback(saves, every=0.0))
    assert saves == PLACES


@pytest.mark.parametrize("looks", range(8))
def test_a_stop_has_written_a_checkpoint(looks):
    saves = []
    with pytest.raises(Stop):
        train(callback(saves, stops_after=looks))
    assert saves == [PLACES[looks]]


def test_a_training_that_a_callback_has_stopped_is_saved_at_the_end_of_the_task():
    saves = []
    made = callback(saves, every=0.0)
    made.model.stop_training = True
    train(made)
    assert saves == []
