"""The table and the sentences on NCCL: they count every number, whatever it says."""

import dataclasses
import hashlib
import re

import pytest

from docs.make.nccl import nccl_table, nccl_verdicts, split_cifar10_table
from nccl_tf.commands.paper.parity import select_cells
from tests.commands.paper.test_parity import find_cell, record
from tests.experiment import sample

CELLS = select_cells(None)


def runs(table, method, memory, accuracy, forgetting=0.0, seeds=3, **changes):
    cell = find_cell(table, method, memory=memory)
    made = [record(cell, seed, accuracy, forgetting, **changes) for seed in range(seeds)]
    states = [hashlib.sha256(f"{cell} {seed}".encode()).hexdigest() for seed in range(seeds)]
    pairs = zip(made, states, strict=True)
    return [dataclasses.replace(one, state_sha256=state) for one, state in pairs]


def point(text, name):
    """The point of a name, without it."""
    (found,) = re.findall(rf"^\* \*\*{re.escape(name)}\*\*: (.*)\.$", text, re.M)
    return found


def test_what_differs_is_counted_and_its_tables_are_named():
    records = runs("T10", "nccl_reservoir", 50, 0.889) + runs("T11", "nccl_reservoir", 500, 0.8815)
    text = point(nccl_verdicts(CELLS, records), "split MNIST")
    assert text == "accuracy agrees in 1 of 2 (-7.0 to +0.0 points; not in T11)"
    without = point(nccl_verdicts(CELLS, records[:3]), "split MNIST")
    assert without == "accuracy agrees in 1 of 1 (+0.0 to +0.0 points)"
    none = point(nccl_verdicts(CELLS, records[3:]), "split MNIST")
    assert none == "accuracy agrees in 0 of 1 (-7.0 to -7.0 points)"


def test_a_number_of_two_tables_counts_once():
    text = point(nccl_verdicts(CELLS, runs("T5", "nccl_ring", 5, 0.5)), "permuted MNIST")
    assert "accuracy agrees in 0 of 1" in text and "forgetting in 0 of 1 (" in text
    both = runs("T5", "nccl_ring", 5, 0.5) + runs("T5", "nccl_reservoir", 5, 0.882)
    assert "accuracy agrees in 1 of 2" in point(nccl_verdicts(CELLS, both), "permuted MNIST")
    assert "not in T1, T5)" in point(nccl_verdicts(CELLS, both), "permuted MNIST")


def test_a_run_whose_bits_are_those_of_another_is_no_further_run():
    """A cap that is never reached changes settings, and no bit: the numbers count, the run once."""
    records = runs("T10", "nccl_reservoir", 50, 0.889) + runs("T11", "nccl_reservoir", 500, 0.8815)
    said = []
    for same in (False, True):
        made = [
            dataclasses.replace(one, state_sha256=f"{number % 3 if same else number:064x}")
            for number, one in enumerate(records)
        ]
        said.append(point(nccl_verdicts(CELLS, made), "split MNIST"))
    assert "agrees in 1 of 2 (-7.0" in said[0]
    assert "agrees in 1 of 2 (by distinct runs 0 of 1, -7.0" in said[1]


def test_forgetting_is_judged_in_both_ways():
    """As defined it is 0.5, and less the last task's gain, 0.9/4, it is 0.275."""
    made = runs("T10", "nccl_ring", 5, 0.4, 0.5)
    for one in made:
        one.accuracy_matrix[-1][-1] = one.accuracy_matrix[-2][-2]
    text = point(nccl_verdicts(CELLS, made), "split MNIST")
    assert text.endswith("forgetting in 0 of 1 (1 with the last task counted)")


@pytest.mark.parametrize("seeds", [1, 2])
def test_no_number_is_left_out(seeds):
    records = [
        *runs("T9", "nccl_ring", 5, 0.838),
        *runs("T13", "nccl_reservoir", 10_000, 0.07, seeds=seeds),
    ]
    text = nccl_verdicts(CELLS, records)
    few, none = (point(text, name) for name in ("fewer than three runs", "no run"))
    assert few == "1 on split CIFAR-100, single head (T2, T13)"
    assert "T12" in none and "training times (T4)" in none and "T13" not in none
    counted = [int(count) for count in re.findall(r" in \d+ of (\d+)", text)]
    counted += [int(n) for n in re.findall(r"(\d+) on", f"{few}; {none}")]
    chosen = [cell for cell in CELLS if cell.method in ("nccl_ring", "nccl_reservoir")]
    distinct = {(c.settings().digest(), c.metric, c.mean, bool(c.doubt)) for c in chosen}
    assert sum(counted) == len(distinct)


def test_a_run_that_evaluates_less_often_is_shown_beside_its_number_of_split_cifar10():
    made = runs("T12", "nccl_ring", 500, 0.25, seeds=2)
    settings = {**made[0].settings_json, "evaluate": "new"}
    less = [sample.changed(one, settings=settings) for one in made]
    other = sample.changed(less[0], settings={**settings, "learning_rate": 0.5})
    rows = split_cifar10_table(CELLS, [*less, other]).splitlines()
    assert rows[2:] == ["| NCCL + Ring | 0.001 | 54.6 | 25.0 | 2 |"]
    assert len(split_cifar10_table(CELLS, [other]).splitlines()) == 2


def test_without_runs_nothing_agrees():
    text = nccl_verdicts(CELLS, [])
    assert "agrees" not in text and point(text, "fewer than three runs") == "none"


def test_another_reading_fits_in_both_metrics_or_not_at_all():
    printed = runs("T6", "nccl_ring", 5, 0.5)
    near = runs("T6", "nccl_ring", 5, 0.60, 0.03, seeds=1, learning_rate=0.03)
    forgets = runs("T6", "nccl_ring", 5, 0.60, 0.09, seeds=1, learning_rate=0.01)
    place = "split CIFAR-100, reduced ResNet-18"
    for records, counts in ((forgets, "0 of 1"), ([*near, *forgets], "1 of 2")):
        text = point(nccl_verdicts(CELLS, [*printed, *records]), place)
        assert text.endswith(
            f"; {counts} other readings come within 2 points and 0.02 in forgetting"
        )


def test_the_table_has_the_main_table_and_all_of_the_full_network():
    records = [
        *runs("T5", "nccl_ring", 5, 0.861, 0.083),
        *runs("T8", "er_ring", 1, 0.61, 0.123, seeds=1),
        *runs("T9", "nccl_ring", 5, 0.838),
    ]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in nccl_table(CELLS, records).splitlines()[2:]
    ]
    assert rows == [
        ["T1, permuted MNIST, 60,000 a task: NCCL + Ring, 5", "84.4, 0.053", "86.1, 0.083", "3"],
        ["T8, split CIFAR-100, full ResNet-18: ER-Ring, 1", "59.6, 0.140", "61.0, 0.123", "1"],
    ]


def test_training_times_are_counted_apart():
    def timed(method, seconds):
        cell = find_cell("T4", method, "train_time_s", None, "permuted_mnist")
        return [record(cell, seed, 0.5, seconds=seconds) for seed in range(3)]

    text = nccl_verdicts(CELLS, timed("er_ring", 10.0) + timed("nccl_ring", 20.0))
    found = point(text, "training times")
    assert "NCCL + Ring 2.00 for 1.53" in found  # 20 s over 10; the paper has 167 over 109.
    assert "agrees" not in found
    assert "time" not in point(text, "permuted MNIST")
    assert "3 on training times (T4)" in point(text, "no run")
