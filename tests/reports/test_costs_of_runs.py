"""Bytes, examples and times of runs, by hand."""

import dataclasses

import pytest

from nccl_tf.reports import costs, tables
from nccl_tf.reports.records import by_settings
from tests.experiment import sample


def record(method, seconds=1.0, **given):
    steps = {"task_steps": [4, 4, 4], "steps": 12, "train_seconds": seconds}
    return sample.changed(sample.record(method=method, dataset="permuted_digits", **given), **steps)


def with_settings(made, **other):
    """The record with other settings and the hash of these, unchecked."""
    settings = dataclasses.replace(made.settings, **other)
    return dataclasses.replace(made, settings=settings, settings_hash=settings.digest())


def cells(made):
    ratios = costs.times_over_finetuning(by_settings(made))
    return [costs.cost_cells(group, ratios) for group in by_settings(made)]


def test_what_a_record_lacks_is_a_dash():
    found = cells([record("finetune", 2.0), record("er_reservoir", 5.0, memory=100)])
    assert found == [("-", "-", "1.0"), ("-", "-", "2.5")]


def test_what_a_record_has_is_shown():
    made = sample.changed(record("er_reservoir"), bytes_stored=7000, examples_passed=9)
    assert cells([made]) == [("7,000", "9", "-")]


def test_of_several_seeds_the_largest_is_shown():
    made = [
        sample.changed(record("er_reservoir", seed=i), bytes_stored=7 + i, examples_passed=900 + i)
        for i in range(2)
    ]
    assert cells(made) == [("8", "901", "-")]


@pytest.mark.parametrize(
    "other",
    [
        {"batch_size": 20}, {"epochs": 2}, {"hidden": [8]}, {"head": "single"}, {"max_tasks": 2},
    ],
    ids=str,
)  # fmt: skip
def test_times_compare_with_the_same_circumstances_alone(other):
    given = {"dataset": "split_digits"} if "head" in other else {}
    values = [[0.5, 0.1], [0.4, 0.5]] if "max_tasks" in other else None
    base = sample.record(values, method="finetune", **given, **other)
    run = sample.record(method="er_reservoir", **given)
    assert not costs.times_over_finetuning([[run]])
    assert list(costs.times_over_finetuning([[base], [run]])) == [base.settings_hash]


@pytest.mark.parametrize(
    "other",
    [
        {"kind": "permuted"}, {"content": "0f" * 8}, {"label": "kind"}, {"domain": "place"},
        {"hyperparameters": {"validation": 0.2}}, {"hyperparameters": {"epochs_of_tasks": "1_2"}},
    ],
    ids=str,
)  # fmt: skip
def test_another_stream_of_the_same_name_is_not_compared_with(other):
    run = record("er_reservoir", 20.0)
    bases = [record("finetune", 10.0), with_settings(record("finetune", 50.0), **other)]
    ratios = costs.times_over_finetuning([[run], *([base] for base in bases)])
    assert ratios[run.settings_hash] == 2.0


@pytest.mark.parametrize("other", [{"alignment": "fisher"}, {"average_weights": 0.9}], ids=str)
def test_fine_tuning_with_more_work_is_a_run_like_others(other):
    plain, more = record("finetune", 10.0), with_settings(record("finetune", 50.0), **other)
    ratios = costs.times_over_finetuning([[plain], [more]])
    assert ratios == {plain.settings_hash: 1.0, more.settings_hash: 5.0}


@pytest.mark.parametrize(
    "other", [{"device": "GPU 0 (one)"}, {"environment": {"TF_ENABLE_ONEDNN_OPTS": "1"}}], ids=str
)
def test_another_device_or_other_kernels_are_other_circumstances(other):
    base = sample.changed(record("finetune"), **other)
    ratios = costs.times_over_finetuning([[base], [record("er_reservoir")]])
    assert list(ratios) == [base.settings_hash]


def test_times_are_compared_with_the_mean_over_seeds():
    base = [record("finetune", seconds, seed=i) for i, seconds in enumerate((1.0, 3.0))]
    run = record("er_reservoir", 3.0)
    assert costs.times_over_finetuning([base, [run]])[run.settings_hash] == 1.5
    table = tables.results_table([run], [*base, run])
    assert table.rows[0][table.names.index(costs.TIME)] == "1.5"
    assert tables.results_table([run]).rows[0][table.names.index(costs.TIME)] == "-"
