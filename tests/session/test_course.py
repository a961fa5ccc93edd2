"""Seconds and passes of a call of `learn`, in all its processes."""

from types import SimpleNamespace

from nccl_tf.session.course import Course
from nccl_tf.session.state import Place


def course(evaluation, now, rate=0.5):
    return Course(evaluation, 2, rate, clock=lambda: now[0])


def test_evaluation_is_no_training_in_any_process():
    evaluation, now = SimpleNamespace(seconds=0.0), [100.0]
    first = course(evaluation, now)
    now[0], evaluation.seconds = 128.0, 20.0
    assert first.train_seconds == 8.0
    saved = first.state()
    evaluation, now = SimpleNamespace(seconds=20.0), [3.0]
    second = course(evaluation, now, rate=0.1)
    second.restore(saved)
    assert (second.train_seconds, second.rate) == (8.0, 0.5)
    now[0], evaluation.seconds = 10.0, 24.0
    assert second.train_seconds == 11.0


def test_passes_are_counted_where_they_end():
    evaluation, now = SimpleNamespace(seconds=0.0), [0.0]
    first = course(evaluation, now)
    first.before_task(Place(0))
    for epoch in range(3):
        first.on_epoch_end(epoch)
    second = course(evaluation, now)
    second.restore(first.state())
    second.before_task(Place(1, 1))
    second.on_epoch_end(1)
    assert second.passes == [3, 2]
