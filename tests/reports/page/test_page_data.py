"""What the page holds: the numbers of its groups, streams and step sizes."""

import itertools
import json

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.reports.page.data import page_data
from nccl_tf.reports.page.distributions import distributions
from nccl_tf.reports.records import RecordedRun
from tests.experiment import sample
from tests.reports.page.samples import write_steps


@pytest.fixture
def data(runs):
    return page_data(runs)[0]


def test_trials_are_a_stream_of_their_own_and_the_last(data):
    assert [stream["tuning"] for stream in data["streams"]] == [False, False, True]
    assert data["streams"][-1]["title"].endswith("trials of a sweep")
    assert [g["stream"] for g in data["groups"] if g["accuracy"][0] == pytest.approx(12.3)] == [2]


def test_a_group_is_the_seeds_of_one_settings(data, records):
    assert sum(len(group["rows"]) for group in data["groups"]) == len(records)
    nccl = next(g for g in data["groups"] if g["method"] == "NCCL + Ring")
    assert [data["columns"]["seed"][row] for row in nccl["rows"]] == [0, 1]
    assert nccl["accuracy"] == [pytest.approx(80), 0] and nccl["forgetting"][0] == pytest.approx(
        0.15
    )
    assert nccl["matrix"] == [[90, 10, None], [80, 90, 10], [70, 80, 90]]
    assert nccl["curve"] == [[90, 85, 80], [0, 0, 0]]
    joint = next(g for g in data["groups"] if g["method"] == "Multi-task")
    assert joint["forgetting"] is None and joint["curve"][0] == [None, None, 95]


def test_labels_say_what_sets_settings_apart():
    made = [sample.record(method="er_ring", learning_rate=rate) for rate in (0.1, 0.01, 0.1)]
    made[2] = {**made[2], "settings_hash": "f" * 64}
    groups = page_data([RecordedRun(record, None) for record in made])[0]["groups"]
    labels = [group["label"] for group in groups]
    assert len(set(labels)) == 3 and any("learning_rate 0.01" in label for label in labels)
    assert sum("ffffffff" in label for label in labels) == 1


def test_settings_that_seem_alike_are_set_apart_from_each_other():
    """Of three, two have averaged weights: what most have is named where it sets two apart."""
    made = [
        sample.record(method="derpp", memory_per_class=slots, average_weights=decay)
        for slots, decay in ((1, 0.99), (5, 0.99), (5, None))
    ]
    groups = page_data([RecordedRun(record, None) for record in made])[0]["groups"]
    labels = {group["label"] for group in groups}
    assert "DER++" in labels and "DER++, average_weights 0.99" in labels
    assert len(labels) == 3 and not any(g["id"][:8] in g["label"] for g in groups)


def test_it_is_json_and_the_order_of_the_runs_does_not_matter(runs):
    texts = {
        json.dumps(page_data(order)[0], allow_nan=False)
        for order in (runs, runs[::-1], runs[3:] + runs[:3])
    }
    assert len(texts) == 1
    assert json.loads(*texts)["setting_names"]


def test_no_runs_are_an_empty_page():
    data, problems = page_data([])
    assert (data["groups"], data["streams"], problems) == ([], [], [])


def test_quantiles_are_of_the_windows_of_all_seeds_in_a_part(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 120)).round(6)
    for name, each in zip("ab", values, strict=True):
        write_steps(tmp_path / name, each)
    found = distributions([tmp_path / "a", None, tmp_path / "b", tmp_path / "none"])
    assert found["step"] == list(range(30, 1201, 30))
    parts = values.reshape(2, 40, 3).transpose(1, 0, 2).reshape(40, 6)
    expected = np.quantile(parts, [0.05, 0.25, 0.5, 0.75, 0.95], axis=1)
    np.testing.assert_allclose(found["lambda"], expected, rtol=5e-3)
    assert found["alpha_h"] == [[0.1] * 40] * 5 and "beta_h" not in found


def test_parts_that_measured_nothing_are_null(tmp_path):
    write_steps(tmp_path / "a", [np.nan, 1.0, np.inf])
    assert distributions([tmp_path / "a"])["lambda"] == [[None, 1.0, None]] * 5
    write_steps(tmp_path / "b", [np.nan])
    assert "lambda" not in distributions([tmp_path / "b"])
    assert distributions([None]) is None


@pytest.mark.parametrize(
    "text", ["", "step\n", "step,lambda_mean\n", "a,b\n1,2\n", "step,lambda_mean\nnan,1\n",
             "step,lambda_mean\ninf,1\n", "step,lambda_mean\n1e308,1\n",
             "step,lambda_mean\n-5,1\n"],
)  # fmt: skip
def test_odd_steps_have_no_distribution(tmp_path, text):
    (tmp_path / "steps.csv").write_text(text)
    try:
        assert distributions([tmp_path]) is None
    except UserError as error:
        assert "cannot read the steps" in str(error)


def test_a_broken_steps_file_is_named_and_its_run_shown(tmp_path):
    write_steps(tmp_path, [1.0])
    run = RecordedRun(sample.record(), tmp_path)
    assert page_data([run])[0]["groups"][0]["steps"] is not None
    (tmp_path / "steps.csv").write_text("step,lambda_mean\n1,x\n")
    data, (problem,) = page_data([run])
    assert "steps.csv" in problem and data["groups"][0]["steps"] is None


def test_a_thousand_settings_take_no_square_of_time():
    """`differences` counts each value once."""
    record = sample.record(method="nccl_ring")
    made = [
        {**record, "settings": {**record["settings"], "learning_rate": rate / 1000},
         "settings_hash": f"{rate:064x}"}
        for rate in range(1, 1001)
    ]  # fmt: skip
    groups = page_data([RecordedRun(one, None) for one in made])[0]["groups"]
    assert len({group["label"] for group in groups}) == 1000
    assert all(a["rows"] != b["rows"] for a, b in itertools.pairwise(groups))
