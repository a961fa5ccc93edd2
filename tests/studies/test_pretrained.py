"""The study of pretrained features: a run on tiny ones, what tuning chooses, and the tables."""

import numpy as np
import pytest

from nccl_tf.methods.registry import METHODS
from studies.pretrained import __main__ as study

SYSTEMS = {system["name"]: system for system in study.PLAN["systems"]}
LABELS = np.arange(80, dtype=np.int32) % 4
PARTS = dict.fromkeys(("train", "test"), (np.eye(4, dtype=np.float16)[LABELS] + 0.1, LABELS))


@pytest.mark.parametrize("name", ["ncm", "alignment", "joint"])
def test_a_run_has_its_figures_and_its_key(name):
    system = SYSTEMS[name]
    numbers = next(study.points(system)) | ({"learning_rate": 1.0} if name != "ncm" else {})
    key = study.key_of("dinov2", system, 2, 0, numbers)
    row = study.run(system, PARTS, {"tasks": 2}, key)
    assert {name: row[name] for name in key} == key
    assert row["accuracy"] == 1.0 and set(row) == {*key, *study.FIGURES}
    assert (row["forgetting"] is None) == (name == "joint")


def test_the_most_accurate_point_is_chosen_once_all_are_tried():
    system, seed = SYSTEMS["ncm"], study.PLAN["tuning_seed"]
    rows = [
        {**study.key_of("dinov2", system, 1, seed, numbers), "accuracy": accuracy}
        for numbers, accuracy in zip(study.points(system), (0.3, 0.4), strict=True)
    ]
    assert study.chosen(rows, "dinov2", system, 1) == {"ncm_distance": "cosine"}
    assert study.chosen(rows[:1], "dinov2", system, 1) is None
    assert study.chosen(rows, "efficientnet", system, 1) is None
    figures = {"forgetting": 0.1, "seconds": 3, "bytes_stored": 2e6, "examples_passed": 4000}
    for evaluated, accuracy in ((0, 0.4), (1, 0.6)):
        key = study.key_of("dinov2", system, 1, evaluated, {"ncm_distance": "cosine"})
        rows.append({**key, **figures, "accuracy": accuracy})
    shown = study.tables(rows)
    expected = "| NCM | ncm_distance cosine | 2 | 50.0 ± 10.0 | 0.100 ± 0.000 | 3 | 2.00 | 4,000 |"
    assert expected in shown and "DINOv2-small, 1 pass" in shown
    assert "no results yet" in study.tables([])


def test_the_plan_names_methods_and_numbers_that_there_are():
    for system in SYSTEMS.values():
        method = METHODS[system["method"]]
        numbers = {row.name for row in method.hyperparameters} | {"learning_rate"}
        assert set(system["grid"]) <= numbers
    assert len(list(study.cells())) == 2 * 9 * 2 + 2 * 4 + 1
