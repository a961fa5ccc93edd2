"""Parity: verdicts, training time as ratios, the order of the methods, runs with other settings."""

import dataclasses

import numpy as np
import pytest

from nccl_tf.commands.paper.alternative_forgetting import last_task_table, with_last_task
from nccl_tf.commands.paper.parity import (
    TIME_RATIO,
    Comparison,
    compare,
    select_cells,
    tolerance,
)
from nccl_tf.commands.paper.parity_tables import (
    summary,
    verdict_table,
)
from nccl_tf.commands.paper.ranking import orders
from nccl_tf.commands.paper.variants import variants
from nccl_tf.errors import UserError
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.records.new_record import make_record
from nccl_tf.records.options import RunOptions
from tests.experiment import sample
from tests.experiment.sample import MEASURED


def record(cell, seed, accuracy, forgetting=0.0, seconds=1.0, **changes):
    """A record of a cell's run with this average accuracy and forgetting, in fractions."""
    settings = resolve({**cell.flags(), **changes})
    matrix = np.full((settings.max_tasks,) * 2, accuracy + forgetting)
    matrix[np.triu_indices(len(matrix), 2)] = np.nan
    matrix[-1] = accuracy
    return make_record(
        settings, RunOptions(), seed, matrix=matrix, initial=np.zeros(len(matrix)),
        measured={**MEASURED, "train_seconds": seconds},
    )  # fmt: skip


def find_cell(table, method, metric="accuracy", memory=5, dataset=None):
    (cell,) = [
        c
        for c in select_cells(table, dataset, method)
        if c.metric == metric and c.memory_size == memory
    ]
    return cell


def comparison(published, std, values, metric="accuracy", cell=None):
    cell = cell or find_cell("T9", "nccl_ring")
    return Comparison(cell, metric, published, std, tuple(values))


def test_two_standard_errors_of_a_difference():
    assert tolerance(None, 0.0, 3) == 0
    assert tolerance(4**0.5, 0.0, 3) == pytest.approx(2)
    assert tolerance(0.0, 3.0, 10) == pytest.approx(2)
    assert tolerance(4**0.5 * 3, 4.0, 2) == pytest.approx(10)


@pytest.mark.parametrize(
    ("values", "metric", "verdict"),
    [
        ((), "accuracy", "missing"),
        ((80.0,), "accuracy", "too few seeds"),
        ((80.0, 80.0), "accuracy", "too few seeds"),
        ((80.0, 80.0, 80.0), "accuracy", "agrees"),
        ((81.0, 81.0, 81.0), "accuracy", "agrees"),  # Within a point.
        ((81.1, 81.1, 81.1), "accuracy", "differs"),
        ((78.0, 82.0, 83.2), "accuracy", "agrees"),  # Within two standard errors.
        ((80.02, 80.02, 80.02), "forgetting", "differs"),  # A point of a fraction is 0.01.
        ((80.009, 80.009, 80.009), "forgetting", "agrees"),
        ((80.0, 80.0), TIME_RATIO, "too few seeds"),
        ((80.0, 80.0, 80.0), TIME_RATIO, "no verdict"),
    ],
)
def test_verdicts(values, metric, verdict):
    found = comparison(80.0, None, values, metric)
    assert found.verdict == verdict
    assert found.seeds == len(values)
    assert (found.ours is None) == (not values)


def test_the_published_spread_widens_what_agrees():
    values = (83.0, 83.0, 83.0)
    assert comparison(80.0, None, values).verdict == "differs"
    assert comparison(80.0, 5.0, values).verdict == "agrees"


def test_a_cell_takes_the_records_of_its_flagfile_and_no_others():
    cell = find_cell("T9", "nccl_ring")
    runs = [record(cell, seed, 0.8 + seed / 100, 0.1) for seed in range(3)]
    other = [
        record(cell, 3, 0.1, learning_rate=0.01),
        record(cell, 3, 0.1, max_tasks=2),
        record(cell, 3, 0.1, tasks="tuning"),
        record(find_cell("T9", "nccl_ring", memory=1), 3, 0.1),
    ]
    (accuracy,) = compare([cell], runs + other)
    assert accuracy.values == pytest.approx((80, 81, 82))
    forgotten = dataclasses.replace(cell, metric="forgetting")
    assert compare([forgotten], runs)[0].values == pytest.approx((0.1, 0.1, 0.1))


def test_time_is_a_ratio_to_er_ring_of_the_same_seed():
    reference = find_cell("T4", "er_ring", "train_time_s", None, "permuted_mnist")
    cell = find_cell("T4", "nccl_ring", "train_time_s", None, "permuted_mnist")
    runs = [record(reference, seed, 0.5, seconds=10.0 * (seed + 1)) for seed in range(3)]
    runs += [record(cell, seed, 0.5, seconds=20.0 * (seed + 1)) for seed in range(5)]
    (found,) = compare([cell], runs)
    assert found.metric == "train_time_ratio"
    assert found.published == 167 / 109
    assert found.values == (2.0, 2.0, 2.0)
    assert found.verdict == "no verdict"


def test_a_run_made_again_to_be_timed_counts_for_its_time_alone():
    reference, cell = (
        find_cell("T4", method, "train_time_s", None, "permuted_mnist")
        for method in ("er_ring", "nccl_ring")
    )
    before = [record(cell, seed, 0.5, seconds=99.0) for seed in range(2)]
    before = [sample.changed(run, commit="1" * 40) for run in before]
    again = [record(reference, 0, 0.5, seconds=10.0), record(cell, 0, 0.7, seconds=20.0)]
    accuracy = dataclasses.replace(cell, metric="accuracy")
    time, accurate = compare([cell, accuracy], [*before, *again])
    assert time.values == (2.0,)
    assert accurate.values == pytest.approx((50, 50))


@pytest.mark.parametrize(
    "other",
    [
        {"commit": "1" * 40},
        {"package_modified": True},
        {"device": "another"},
        {"options": {"threads": 7}},
        {"xla": True, "steps_per_program": 200},
        {"environment": {"TF_ENABLE_ONEDNN_OPTS": "1"}},
    ],
)
def test_times_are_compared_only_where_they_were_taken_alike(other):
    reference = find_cell("T4", "er_ring", "train_time_s", None, "permuted_mnist")
    cell = find_cell("T4", "nccl_ring", "train_time_s", None, "permuted_mnist")
    run = record(cell, 0, 0.5, seconds=20.0)
    (alike,) = compare([cell], [record(reference, 0, 0.5, seconds=10.0), run])
    (apart,) = compare(
        [cell], [record(reference, 0, 0.5, seconds=10.0), sample.changed(run, **other)]
    )
    assert alike.values == (2.0,) and apart.values == ()


def test_doubtful_cells_have_a_verdict_and_are_counted_apart():
    cell = find_cell("T9", "er_ring")
    found = compare([cell, find_cell("T9", "nccl_ring")], [record(cell, k, 0.9) for k in range(3)])
    assert [c.verdict for c in found] == ["differs", "missing"]
    assert found[0].as_json()["doubt"].startswith("copied")
    assert summary(found) == (
        "2 cells: 0 agrees, 1 differs, 0 too few seeds, 1 missing; without the 1 doubtful: "
        "1 cell: 0 agrees, 0 differs, 0 too few seeds, 1 missing"
    )
    assert summary(found[:1]) == (
        "1 cell: 0 agrees, 1 differs, 0 too few seeds, 0 missing; all of them doubtful"
    )
    table = verdict_table("T9", found)
    assert table.rows[0][-1] == "differs (a)"
    assert "86.7, 86.5" in table.rows[0]  # The TF1 code base.
    assert table.notes[1].startswith("a: copied")


def test_the_order_of_the_methods():
    cells = {name: find_cell("T6", name) for name in ("er_ring", "ewc", "finetune", "nccl_ring")}

    def found(values):
        return [
            comparison(c.mean, c.std, np.array([-0.1, 0, 0.1]) + values[name], cell=c)
            for name, c in cells.items()
        ]

    (same,) = orders(found({"er_ring": 62, "nccl_ring": 61, "ewc": 43, "finetune": 40}))
    assert same.correlation == pytest.approx(1)
    assert (len(same.same), same.reversed, same.open) == (4, (), ())
    # The paper separates 4 of the 6 pairs: not er_ring from nccl_ring, nor ewc from finetune.
    (other,) = orders(found({"er_ring": 50, "nccl_ring": 43, "ewc": 43.05, "finetune": 60}))
    assert other.correlation < 0.5
    assert set(other.reversed) == {("er_ring", "finetune"), ("nccl_ring", "finetune")}
    assert (other.same, other.open) == ((("er_ring", "ewc"),), (("nccl_ring", "ewc"),))


def test_no_order_of_a_single_method_or_too_few_seeds():
    cell = find_cell("T6", "er_ring")
    assert orders([comparison(1, 1, (1, 2, 3), cell=cell), comparison(1, 1, (1, 2))]) == []


def test_runs_with_other_settings_stand_beside_their_cell():
    cell = find_cell("T6", "nccl_ring")
    runs = [record(cell, 0, 0.5), record(cell, 0, 0.6, learning_rate=0.03)]
    runs += [record(cell, k, 0.7, beta_max=0.5, mask="union") for k in range(2)]
    runs += [record(cell, 0, 0.1, max_tasks=2), record(cell, 0, 0.1, tasks="tuning")]
    forgetting = find_cell("T6", "nccl_ring", "forgetting")
    found = variants([cell, forgetting], runs)
    assert [(v.changes, len(v.records)) for v in found] == [
        ("learning_rate 0.03", 1), ("mask union, beta_max 0.5", 2),
    ]  # fmt: skip


def test_a_memory_size_of_no_cell_is_a_variant_of_all():
    cells = [find_cell("T9", "agem", memory=1), find_cell("T9", "agem", memory=5)]
    runs = [record(cells[0], 0, 0.6), record(cells[1], 0, 0.7, learning_rate=0.03)]
    runs += [record(cells[1], 0, 0.8, memory_per_class=13)]
    found = {(v.cell.memory_size, v.changes) for v in variants(cells, runs)}
    other = "memory_slots 13, memory_capacity 2600"
    assert found == {(1, other), (5, other), (5, "learning_rate 0.03")}


def test_forgetting_is_held_against_the_paper_both_ways():
    cell = find_cell("T10", "nccl_reservoir", "forgetting", memory=50)
    assert cell.mean < 0
    peak = 0.98
    final = (peak - cell.mean) * 4 / 5  # (4 peaks - 5 finals)/4 is the published value.
    records = [record(cell, seed, final, peak - final) for seed in range(3)]
    (row,) = last_task_table("T10", compare([cell], records), records).rows
    assert [row[i] for i in (4, 5, 6, 7)] == [
        f"{peak - final:.3f} ± 0.000", "differs", f"{cell.mean:.3f} ± 0.000", "agrees",
    ]  # fmt: skip
    few = records[:2]
    assert not last_task_table("T10", compare([cell], few), few).rows


def test_without_the_last_task_before_training_there_is_no_forgetting_with_it():
    """Which the TF1 code base has of permuted streams alone."""
    record = sample.record([[0.9, np.nan], [0.7, 0.8]])
    assert with_last_task(record).forgetting is None
    measured = sample.record([[0.9, 0.5], [0.7, 0.8]])
    assert with_last_task(measured).forgetting == pytest.approx(0.2 - (0.8 - 0.5))
    split = sample.record([[0.9, np.nan], [0.7, 0.8]], dataset="split_digits", num_tasks=5)
    assert with_last_task(split).forgetting == pytest.approx(0.2 - 0.8)


def test_cells_that_are_not_there():
    with pytest.raises(UserError, match="did you mean 'T13'"):
        select_cells("T133")
    with pytest.raises(UserError, match="T9 has no number of gem on any data set"):
        select_cells("T9", method="gem")
