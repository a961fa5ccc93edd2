"""The command `tables`: which records it shows, and what it refuses."""

import pytest

from nccl_tf.records.record import write_record
from tests.experiment import sample


@pytest.fixture
def tables(tmp_path, command):
    """Runs the command on two methods, of which one has two seeds, and a trial of a third."""
    runs = [
        sample.record(method="er_ring"), sample.record(seed=1, method="er_ring"),
        sample.record(method="finetune"), sample.record(method="nccl_ring", tasks="tuning"),
    ]  # fmt: skip
    for number, record in enumerate(runs):
        write_record(record, tmp_path / "runs" / str(number))
    return lambda *argv: command("tables", f"--output_dir={tmp_path / 'runs'}", *argv)


def test_it_shows_the_records_that_are_asked_for(tables):
    code, out, _ = tables("--method=er_ring", "--seeds=1", "--dataset=permuted_digits")
    assert code == 0 and "| ER-Ring | 0.1 | 500 | 1 |" in out and "Fine-tune" not in out
    assert "Fine-tune" in tables()[1]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--method=gem"], "has that --dataset, --method and --seeds: leave them out"),
        (["--method=nccl_ring"], "no record is of evaluated tasks"),
    ],
)
def test_what_shows_nothing_is_refused(tables, argv, said):
    code, _, err = tables(*argv)
    assert code == 2 and said in err
