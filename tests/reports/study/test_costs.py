"""The file of step times beside a plan."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.study.costs import costs_path, costs_text, read_costs
from tests.experiment.study import plans


@pytest.fixture
def plan(tmp_path):
    return read_plan(plans.write_plan(tmp_path))


def test_what_is_written_is_read(plan):
    assert read_costs(plan) == {}
    costs = {"digits": {"nccl": 1.25, "mc_sgd": 3.0}, "heads": {"nccl": 2.0}}
    costs_path(plan).write_text(costs_text(costs))
    assert read_costs(plan) == costs


@pytest.mark.parametrize("text", ["digits = 1", '[digits]\nnccl = "fast"', "[digits"])
def test_a_file_of_something_else_is_refused(plan, text):
    costs_path(plan).write_text(text)
    with pytest.raises(UserError, match=r"make it again with python -m benchmarks\.study_steps"):
        read_costs(plan)
