"""What the page shows: groups, streams and the distributions of step sizes."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.reports.page.groups import step_sizes, streams_of, views_of
from nccl_tf.reports.records import RecordedRun, spread_of
from tests.experiment import sample
from tests.reports.page.samples import write_steps


def groups_of(records):
    """The groups of the one stream that records are of."""
    (groups,) = streams_of([RecordedRun(record, None) for record in records])[0].values()
    return groups


def test_a_group_is_the_seeds_of_one_settings(runs, records):
    streams = streams_of(runs)[0]
    groups = [group for members in streams.values() for group in members]
    assert sum(len(group.records) for group in groups) == len(records)
    nccl = next(group for group in groups if group.method == "NCCL + Ring")
    assert [record.seed for record in nccl.records] == [0, 1]
    assert spread_of(nccl.records, "average_accuracy")[:2] == (pytest.approx(0.8), 0)
    assert spread_of(nccl.records, "forgetting").mean == pytest.approx(0.15)
    np.testing.assert_allclose(nccl.curve()[:2], [[90, 85, 80], [0, 0, 0]])
    joint = next(group for group in groups if group.joint)
    assert np.isnan(spread_of(joint.records, "forgetting")[:2]).all()
    np.testing.assert_allclose(joint.curve()[0], [np.nan, np.nan, 95])


def test_the_best_come_first_and_the_order_of_the_runs_does_not_matter(runs):
    orders = (runs, runs[::-1], runs[3:] + runs[:3])
    labels = [
        [
            (title, [group.label for group in groups])
            for title, groups in streams_of(order)[0].items()
        ]
        for order in orders
    ]
    assert labels[0] == labels[1] == labels[2]
    assert dict(labels[0])[labels[0][1][0]][0] == "Multi-task"


def test_labels_say_what_sets_settings_apart():
    made = [sample.record(method="er_ring", learning_rate=rate) for rate in (0.1, 0.01, 0.1)]
    made[2] = sample.changed(made[2], settings_hash="f" * 64)
    labels = [group.label for group in groups_of(made)]
    assert len(set(labels)) == 3 and any("learning_rate 0.01" in label for label in labels)
    assert sum("ffffffff" in label for label in labels) == 1


def of_memory(method, size, accuracy=0.5, **more):
    values = [[accuracy, np.nan], [accuracy, accuracy]]
    return sample.record(values, method=method, memory=size, **more)


def test_labels_say_the_memory_where_it_differs_between_methods():
    made = [of_memory("er_reservoir", 1000), of_memory("derpp", 200)]
    plain = sample.record([[0.5, np.nan], [0.5, 0.5]], method="finetune")
    labels = {group.label for group in groups_of([*made, plain])}
    assert labels == {"ER-Reservoir, memory 1000", "DER++, memory 200", "Fine-tune"}
    assert {group.label for group in groups_of([made[0], plain])} == {"ER-Reservoir", "Fine-tune"}


def test_the_first_view_has_the_budget_of_most_methods_and_the_last_has_all():
    made = [
        of_memory("er_reservoir", 1000), of_memory("derpp", 1000), of_memory("derpp", 200),
        of_memory("der", 200, epochs=3), of_memory("mir", 200, batch_size=5),
        *(sample.record([[0.5, np.nan], [0.5, 0.5]], method=name) for name in ("ewc", "si", "mas")),
    ]  # fmt: skip
    groups = groups_of(made)
    views = views_of(groups)
    labels = {name: {group.label for group in members} for name, members in views.items()}
    plain = {"EWC", "SI", "MAS"}
    assert next(iter(labels.items())) == (
        "a memory of 1000, batches of 10, one pass", {"ER-Reservoir", "DER++", *plain}
    )  # fmt: skip
    assert labels["a memory of 200, batches of 10, one pass"] == {"DER++", *plain}
    assert labels["a memory of 200, batches of 10, 3 passes"] == {"DER"}
    assert labels["a memory of 200, batches of 5, one pass"] == {"MIR"}
    assert list(views)[-1].startswith("all") and list(views.values())[-1] == groups
    assert len(views) == 5
    assert list(views_of(groups_of(made[-2:]))) == ["no memory, batches of 10, one pass"]


def test_streams_have_names_of_their_own():
    values = [[0.5, np.nan], [0.5, 0.5]]
    made = [
        sample.record(values), sample.record(values, num_tasks=2),
        sample.record(values, num_tasks=5, tuning_tasks=3),
        sample.record(values, num_tasks=5, tuning_tasks=1),
        sample.record(values, examples_per_task=100), sample.record([[0.5]], tasks="tuning"),
        sample.record(values, tasks="tuning", tuning_tasks=3, num_tasks=10),
    ]  # fmt: skip
    streams = streams_of([RecordedRun(record, None) for record in made])[0]
    assert len(streams) == len(made)
    plain = "permuted_digits (single-head), "
    for words in ("the first 2 of 10 tasks", "2 tasks", "2 tasks, 3 more held out for tuning"):
        assert plain + words in streams
    assert all("trials of a sweep" in title for title in list(streams)[-2:])


def test_quantiles_are_of_the_windows_of_all_seeds_in_a_part(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 120)).round(6)
    for name, each in zip("ab", values, strict=True):
        write_steps(tmp_path / name, each)
    found = step_sizes([tmp_path / "a", None, tmp_path / "b", tmp_path / "none"])
    parts = values.reshape(2, 40, 3).transpose(1, 0, 2).reshape(40, 6)
    expected = [range(30, 1201, 30), *np.quantile(parts, [0.05, 0.5, 0.95], axis=1)]
    np.testing.assert_allclose(found["lambda"], expected)
    np.testing.assert_allclose(found["alpha_h"][1:], np.full((3, 40), 0.1))
    assert "beta_h" not in found


@pytest.mark.parametrize(
    "text", ["", "step\n", "step,lambda_mean\n", "a,b\n1,2\n", "step,lambda_mean\nnan,1\n",
             "step,lambda_mean\ninf,1\n", "step,lambda_mean\n1e308,1\n",
             "step,lambda_mean\n-5,1\n"],
)  # fmt: skip
def test_odd_steps_have_no_distribution(tmp_path, text):
    (tmp_path / "steps.csv").write_text(text)
    try:
        assert step_sizes([tmp_path]) == {}
    except UserError as error:
        assert "steps.csv" in str(error)


def test_a_broken_steps_file_is_named_and_its_run_shown(tmp_path):
    write_steps(tmp_path, [1.0])
    run = RecordedRun(sample.record(), tmp_path)
    ((group,),) = streams_of([run])[0].values()
    assert set(group.steps) == {"lambda", "alpha_h"}
    (tmp_path / "steps.csv").write_text("step,lambda_mean\n1,x\n")
    streams, (problem,) = streams_of([run])
    ((group,),) = streams.values()
    assert "steps.csv" in problem and group.steps == {}
