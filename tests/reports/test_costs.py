"""The files of step times, beside a plan and beside records."""

import re
from pathlib import Path

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.costs import FILE_NAME, by_hash, costs_text, read_costs
from tests.experiment.study import plans

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plan(tmp_path):
    return read_plan(plans.write_plan(tmp_path))


def test_what_is_written_is_read(plan):
    assert read_costs(plan.folder / FILE_NAME) == {}
    costs = {"digits": {"nccl": 1.25, "mc_sgd": 3.0}, "heads": {"nccl": 2.0}}
    (plan.folder / FILE_NAME).write_text(costs_text(costs))
    assert read_costs(plan.folder / FILE_NAME) == costs


def test_the_readme_has_the_steps_of_the_file():
    ratios = by_hash(read_costs(ROOT / "results" / FILE_NAME))
    rows = re.findall(
        r"\| ([\d.]+) \| `(\w{8})` \|$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert {name: text for text, name in rows} == {k: f"{v:.1f}" for k, v in ratios.items()}
    assert 1.0 in ratios.values() and len(rows) > 5


@pytest.mark.parametrize("text", ["digits = 1", '[digits]\nnccl = "fast"', "[digits"])
def test_a_file_of_something_else_is_refused(plan, text):
    (plan.folder / FILE_NAME).write_text(text)
    with pytest.raises(UserError, match=r"make it again with python -m benchmarks\.study_steps"):
        read_costs(plan.folder / FILE_NAME)
