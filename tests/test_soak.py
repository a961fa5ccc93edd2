"""The soak sees a row that is wrong, and in short no run that ends otherwise than undisturbed."""

import json
import subprocess
import sys

import pytest

from tests.experiment import sample
from tests.soak.compare import differences, row_problems


def row(step, *statistics, total):
    """A row of steps.csv with the statistics of one log."""
    names = ("loss_mean", "loss_min", "loss_max")
    return {
        "step": str(step), **dict(zip(names, statistics, strict=True)),
        "cumulative_loss": str(total),
    }  # fmt: skip


STEPS = [
    row(1, "2", "2", "2", total=2), row(2, "", "", "", total=2), row(3, "5", "5", "5", total=7),
]  # fmt: skip
WHOLE = row(3, "3.5", "2", "5", total=7)


@pytest.mark.parametrize(
    ("rows", "every"),
    [(STEPS, 1), ([WHOLE], 3), ([WHOLE], 9), ([WHOLE], None),
     ([STEPS[0], row(3, "5", "5", "5", total=7)], None)],
    ids=range(5),
)  # fmt: skip
def test_windows_of_the_steps_that_were_done(rows, every):
    assert row_problems(STEPS, rows, every) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(3, "3.5", "2", "5", total=6)], "cumulative_loss of steps 1 to 3 is '6', not '7'"),
        ([row(3, "3.5", "1", "5", total=7)], "loss_min of steps 1 to 3 is '1', not '2'"),
        ([row(3, "3.50000024", "2", "5", total=7)], "loss_mean of steps 1 to 3 is"),
        ([STEPS[0]], "steps after 1 have no row"),
        ([WHOLE, WHOLE], "a row of step 3 comes after one of 3"),
        ([STEPS[0], row(3, "5", "5", "5", total=7)], "a row has steps 1 to 1, 3 were expected"),
    ],
    ids=range(6),
)
def test_rows_that_are_wrong(rows, said):
    assert any(said in problem for problem in row_problems(STEPS, rows, 3))


def finished(folder, **changes):
    """A folder of a run that ended, with the rows of `STEPS`."""
    folder.mkdir()
    record = {**sample.record(), "options": {}, **changes}
    (folder / "result.json").write_text(json.dumps(record))
    lines = [",".join(STEPS[0]), *(",".join(step.values()) for step in STEPS)]
    (folder / "steps.csv").write_text("\n".join(lines))
    return folder


def test_what_differs_between_records(tmp_path):
    whole = finished(tmp_path / "whole")
    same = finished(tmp_path / "same", train_seconds=99.0, options={"threads": 2})
    assert differences(whole, same, 1) == []
    other = finished(tmp_path / "other", state_sha256="1" * 64, accuracy_matrix=[[0.5]])
    assert differences(whole, other, 1) == ["accuracy_matrix differs", "state_sha256 differs"]


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["--cases=6", "--command_lines=3"])
def test_a_short_soak(tmp_path, extra):
    command = [sys.executable, "-m", "tests.soak", extra, f"--output={tmp_path / 'soak.jsonl'}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    counts = json.loads((tmp_path / "soak.jsonl").read_text().splitlines()[-1])
    assert counts.get("faults", 5) >= 5 and not counts.get("differences")
