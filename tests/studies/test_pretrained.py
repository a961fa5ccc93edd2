"""The study of pretrained features: a run on tiny ones, what tuning chooses, and the table."""

import numpy as np

from studies.pretrained import __main__ as study


def test_a_run_is_tuned_on_what_is_held_out_of_the_training_examples(monkeypatch):
    monkeypatch.setattr(study, "TASKS", 2)
    labels = np.arange(80, dtype=np.int32) % 4
    train = np.eye(4, dtype=np.float32)[labels] + 0.1, labels
    row = study.run("ncm", train, None, 0, {"ncm_distance": "cosine"})
    assert (row["tuning"], row["accuracy"], row["forgetting"]) == (True, 1.0, 0.0)
    assert not study.run("ncm", train, train, 1, {})["tuning"]


def test_the_most_accurate_point_is_chosen_once_all_are_tried():
    rows = [
        {"system": "ncm", "tuning": True, "accuracy": accuracy, "numbers": {"ncm_distance": name}}
        for name, accuracy in (("euclidean", 0.3), ("cosine", 0.4))
    ]
    assert study.chosen("ncm", rows) == {"ncm_distance": "cosine"}
    assert study.chosen("ncm", rows[:1]) is None
    assert "no results yet" in study.table(rows)
    run = {
        "system": "ncm", "tuning": False, "numbers": {"ncm_distance": "cosine"},
        "forgetting": 0.1, "seconds": 3,
    }  # fmt: skip
    rows += [{"system": "base", "accuracy": 0.5, "tuning": False}]
    rows += [{**run, "accuracy": accuracy} for accuracy in (0.4, 0.6)]
    shown = study.table(rows)
    assert "| NCM | ncm_distance cosine | 2 | 50.0 ± 10.0 | 0.100 ± 0.000 | - | 3 |" in shown
    assert "50.0 % on the test images" in shown
