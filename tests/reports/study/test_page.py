"""A study's page: who is where in which table, and what stands where there is no number."""

import pytest

from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.study.page import study_page
from nccl_tf.reports.study.results import Result, joint_training
from tests.experiment import sample
from tests.experiment.study import plans


@pytest.fixture
def study(tmp_path):
    """The plan with both systems tuned in both settings, and its cells by name."""
    cells = plans.cells(tmp_path)
    for (_, system), cell in cells.items():
        if system != "er_ace":
            plans.choose(cell, learning_rate=0.1, **({"delta": 0.1} if system == "nccl" else {}))
    return read_plan(tmp_path / "study" / "plan.toml"), cells


def page_of(study, records, costs=None):
    return study_page(study[0], records, costs or {}, "study/plan.toml")


def rows(page, heading):
    """The cells of the first table below a heading, a list a row."""
    lines = page.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    table = [line for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_the_most_accurate_system_comes_first(study):
    cells = study[1]
    records = [plans.record(cells["digits", "mc_sgd"], 0, 0.6)]
    records += [plans.record(cells["digits", "nccl"], seed, 0.7 + seed / 10) for seed in (0, 1)]
    page = page_of(study, records, {"digits": {"nccl": 2.345}})
    best, second, last = rows(page, "Digits, 100 slots")
    nccl = "NCCL + Reservoir"
    assert best == [
        nccl, "learning_rate 0.1, delta 0.1", "75.0 ± 5.0", "0.000 ± 0.000", "37.5 ± 2.5",
        "0.000 ± 0.000", "2", "2.3",
    ]  # fmt: skip
    assert second == ["Merged", "learning_rate 0.1", "60.0", "0.000", "-", "-", "1", "-"]
    assert last == ["ER-ACE", "-", "-", "-", "-", "-", "-", "-"]
    assert "ER-ACE: no class is new." in page
    assert page.index("| best system |") < page.index(nccl) < page.index("## Protocol\n")
    assert page.index("## Protocol\n") < page.index("committed before the runs")
    assert "Merged has no averaged weights: it merges its weights" in page
    assert "Not run yet: Digits with heads." in page
    assert f"![Accuracy against forgetting: {nccl} 75.0 % and 0.000, Merged 60.0 % and" in page
    assert "](images/study_digits.png)" in page


def test_the_picture_in_words_has_the_digits_of_the_table(study):
    """Of accuracies whose mean lies between two: 86.85, which a double can round either way."""
    cell = study[1]["digits", "nccl"]
    for low, high in ((0.868, 0.869), (0.8675, 0.8695), (0.861, 0.876)):
        page = page_of(study, [plans.record(cell, 0, low), plans.record(cell, 1, high)])
        accuracy = rows(page, "Digits, 100 slots")[0][2].split()[0]
        assert f"NCCL + Reservoir {accuracy} % and" in page


def test_joint_training_is_of_the_same_angles(study):
    given = {"dataset": "rotated_mnist", "num_tasks": 20, "epochs": 1}
    found = Result(study[1]["digits", "nccl"], {}, None, (sample.record(**given),), "", "")
    joint = [
        sample.record(method="multi_task", batch_size=10, **given, angles=angles)
        for angles in ("any", "ordered")
    ]
    assert joint_training(found, joint) == joint[1:]


def test_records_that_are_missing_are_counted(study):
    records = [plans.record(study[1]["digits", "nccl"], 1, 0.5)]
    first, second, _ = rows(page_of(study, records), "Digits, 100 slots")
    assert first[6] == "1 of 2"
    assert second == ["Merged", "learning_rate 0.1", "-", "-", "-", "-", "0 of 1", "-"]


def test_other_records_have_no_effect(study):
    cell = study[1]["digits", "nccl"]
    record = plans.record(cell, 0, 0.5)
    others = [plans.record(cell, 7, 0.9), sample.record(method="er_ring")]
    assert page_of(study, [record, *others]) == page_of(study, [record])


def test_the_best_of_each_memory_stands_beside_joint_training(study):
    cells = study[1]
    records = [plans.record(cells["digits", "nccl"], seed, 0.8) for seed in (0, 1)]
    records.append(plans.record(cells["digits", "mc_sgd"], 0, 0.6))
    records.append(plans.record(cells["heads", "mc_sgd"], 0, 0.6))
    for epochs, accuracy in ((1, 0.93), (2, 0.99)):
        flags = {"method": "iid_online", "dataset": "permuted_digits", "epochs": epochs}
        records += [
            sample.record([[accuracy] * 3] * 3, seed, **flags, average_weights=0.9)
            for seed in (0, 1)
        ]
    # Fewer seeds of another one: its mean says less.
    flags = {"method": "multi_task", "dataset": "permuted_digits"}
    records.append(sample.record([[0.95] * 3] * 3, **flags))
    first, second = rows(page_of(study, records), "What is reached with which memory")
    assert first == [
        "Digits, 100 slots", "100", "NCCL + Reservoir", "80.0 ± 0.0", "0.000 ± 0.000", "93.0 ± 0.0",
    ]  # fmt: skip
    assert second == [
        "Digits with heads (not all systems have run)", "10", "Merged", "60.0", "0.000", "-",
    ]  # fmt: skip


def test_averaged_weights_can_be_the_best(study):
    record = plans.record(study[1]["digits", "nccl"], 0, 0.4)
    record |= {"averaged_average_accuracy": 0.5, "averaged_forgetting": 0.25}
    ((_, _, system, accuracy, forgetting, _),) = rows(
        page_of(study, [record]), "What is reached with which memory"
    )
    assert (system, accuracy, forgetting) == (
        "NCCL + Reservoir, averaged weights", "50.0", "0.250",
    )  # fmt: skip


def test_without_records_there_is_no_table(study):
    page = page_of(study, [])
    assert "Not run yet: Digits, 100 slots; Digits with heads." in page
    assert "|" not in page
