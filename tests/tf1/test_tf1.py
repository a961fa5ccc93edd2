"""The learners against the TF1 programs."""

import pytest

from tests.tf1 import compare
from tests.tf1.mutations import MUTATIONS, broken

DENSE = [case for case in compare.DENSE if case.name not in compare.LONG]
RESNET = [case for case in compare.RESNET if case.name not in compare.LONG]


@pytest.mark.parametrize("case", DENSE, ids=lambda case: case.name)
def test_dense_is_its_program(case):
    row = compare.follow(case, compare.dense(short=True))
    assert row.steps >= 40 and row.agrees, row
    # Both branches are taken.
    assert row.interference is None or 0 < row.interference < row.steps


@pytest.mark.parametrize("case", RESNET, ids=lambda case: case.name)
def test_resnet_is_its_program(case):
    row = compare.follow(case, compare.resnet(short=True))
    assert row.agrees, row


@pytest.mark.slow
def test_every_mutation_still_fits(tmp_path):
    for number, mutation in enumerate(MUTATIONS):
        broken(mutation, tmp_path / str(number))


@pytest.mark.slow
def test_every_method_is_its_program():
    assert [row for row in compare.rows() if not row.agrees] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", compare.RESNET, ids=lambda case: case.name)
def test_a_step_in_float32_differs_at_ties_alone(case):
    assert compare.single_steps(case, compare.resnet()).agrees
