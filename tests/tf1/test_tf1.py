"""The learners against the TF1 programs, and the page that shows by how much they differ."""

import re
from pathlib import Path

import pytest

import nccl_tf
from tests.tf1 import compare
from tests.tf1.__main__ import main
from tests.tf1.mutations import MUTATIONS, broken

PAGE = Path(__file__).parents[2] / "docs" / "results" / "tf1.md"
PACKAGE = Path(nccl_tf.__file__).parent
NIGHTLY = {
    "fine-tuning", "ER, ring", "A-GEM, by rows", "NCCL, by rows", "NCCL, β_max, two tapes",
    "ORTHOG-SUBSPACE", "ER", "A-GEM", "Stable SGD",
}  # fmt: skip
DENSE = [case for case in compare.DENSE if case.name not in NIGHTLY]
RESNET = [case for case in compare.RESNET if case.name not in NIGHTLY]


@pytest.mark.parametrize("case", DENSE, ids=lambda case: case.name)
def test_dense_is_its_program(case):
    row = compare.follow(case, compare.dense(short=True))
    assert row.steps >= 40 and row.agrees, row
    # Both branches are taken.
    assert row.interference is None or 0 < row.interference < row.steps


@pytest.mark.nightly  # both build eighteen layers and their gradients, the program as a graph
@pytest.mark.parametrize("case", RESNET, ids=lambda case: case.name)
def test_resnet_is_its_program(case):
    row = compare.follow(case, compare.resnet(short=True))
    assert row.agrees, row


def test_the_page_has_every_row():
    text = PAGE.read_text()
    for setting, cases in ((compare.dense(), compare.DENSE), (compare.resnet(), compare.RESNET)):
        for case in cases:
            steps = min(case.steps, compare.TASKS * setting.steps_per_task)
            assert re.search(rf"\| {re.escape(case.name)} \| {setting.network} \| {steps} ", text)
    assert all(f"| {mutation.rule} |" in text for mutation in MUTATIONS)


@pytest.mark.parametrize(
    "words",
    [["rign"], ["--short", "ringer"], ["--mutations", "rign"], ["EWC", "rign"], ["--shrt"]],
)
def test_a_word_of_no_program_is_an_error(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert words[-1] in capsys.readouterr().err


def test_every_mutation_still_fits(tmp_path):
    broken(MUTATIONS[0], tmp_path)
    for mutation in MUTATIONS:
        assert (PACKAGE / mutation.file).read_text().count(mutation.old) == 1, mutation.rule


@pytest.mark.nightly
def test_every_method_is_its_program():
    rows = [compare.follow(*pair) for pair in compare.pairs()]
    assert [row for row in rows if not row.agrees] == []


@pytest.mark.nightly
@pytest.mark.parametrize("case", compare.RESNET, ids=lambda case: case.name)
def test_a_step_in_float32_differs_at_ties_alone(case):
    assert compare.single_steps(case, compare.resnet()).agrees
