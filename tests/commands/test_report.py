"""The command `report`: its file for each format, and what it refuses."""

import sys

import pytest

from nccl_tf.records.record import write_record
from tests.experiment import sample


@pytest.fixture
def report(tmp_path, command):
    runs = [sample.record(method="er_ring"), sample.record(method="nccl_ring", tasks="tuning")]
    for number, record in enumerate(runs):
        write_record(record, tmp_path / "runs" / str(number))

    def run(*argv):
        return command("report", f"--output_dir={tmp_path / 'runs'}", *argv)

    return run


@pytest.mark.parametrize(
    ("argv", "name", "begin"),
    [
        ([], "report.html", b"<!DOCTYPE html>"),
        (["--format=latex"], "tables.tex", rb"\documentclass"),
        (["--format=tabular"], "results.tex", b"% permuted_digits (single-head)"),
        (["--format=means"], "means.csv", b"method,dataset,head,num_tasks,"),
        (["--format=csv"], "runs.csv", b"method,dataset,head,tasks,seed,"),
        (["--format=csv", "--method=nccl_ring"], "runs.csv", b"method,"),
        (["--format=parquet"], "runs.parquet", b"PAR1"),
    ],
)
def test_a_file_for_each_format(report, tmp_path, argv, name, begin):
    code, out, err = report(*argv, f"--report_dir={tmp_path / 'out'}")
    (path,) = (tmp_path / "out").iterdir()
    assert (code, out, err, path.name) == (0, f"see {path}\n", "", name)
    assert path.read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--format=pdf"], "unknown --format 'pdf'"),
        (["--method=gem"], "no record below"),
        (["--format=latex", "--method=nccl_ring"], "no record is of evaluated tasks"),
        (["--format=tabular", "--method=nccl_ring"], "no record is of evaluated tasks"),
        (["--format=means", "--method=nccl_ring"], "no record is of evaluated tasks"),
        (["--report_dir=/dev/null/x"], "choose another --report_dir"),
        (["--serve"], "unknown flag --serve"),
    ],
)
def test_bad_input(report, argv, said):
    code, _, err = report(*argv)
    assert code == 2 and said in err


@pytest.mark.parametrize("form", ["csv", "latex"])
def test_a_full_disk_leaves_the_earlier_report(report, tmp_path, full_disk, form):
    words = [f"--format={form}", f"--report_dir={tmp_path / 'out'}"]
    report(*words, "--method=er_ring")
    (path,) = (tmp_path / "out").iterdir()
    before = path.read_bytes()
    with full_disk(100):
        code, _, err = report(*words, "--method=er_ring")
    assert code == 2 and err.count("\n") == 1 and "--report_dir" in err
    assert path.read_bytes() == before and len(list((tmp_path / "out").iterdir())) == 1


def test_without_plotly_it_says_what_to_install(report, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, out, err = report(f"--report_dir={tmp_path / 'out'}")
    assert (code, out) == (2, "") and "pip install nccl_tf[report]" in err
    assert len(err.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_an_unreadable_steps_file_is_named(report, tmp_path):
    (tmp_path / "runs" / "0" / "steps.csv").write_text("step,lambda_mean\n1,x\n")
    code, _, err = report(f"--report_dir={tmp_path / 'out'}")
    assert code == 0 and "cannot read the steps" in err
