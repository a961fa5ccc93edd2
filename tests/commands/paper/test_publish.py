"""The command `publish`: which runs it publishes, what it says, and what it refuses."""

import json

import pytest

from nccl_tf.records.record import write_record
from tests.experiment import sample


@pytest.fixture
def publish(command, tmp_path, monkeypatch):
    """Two seeds of ER-Ring and one of fine-tuning below `runs`, published into `results`."""
    monkeypatch.chdir(tmp_path)
    runs = [sample.record(method="er_ring", seed=seed) for seed in (1, 0)]
    for number, record in enumerate([*runs, sample.record(method="finetune")]):
        write_record(record, tmp_path / "runs" / str(number))
    return lambda *argv: command("publish", *argv)


def test_runs_become_lines_that_reports_read(publish, command, tmp_path):
    files = [f"results/permuted_digits-single/{name}.jsonl" for name in ("er_ring", "finetune")]
    code, out, err = publish()
    assert (code, err) == (0, "")
    assert out == (
        f"{files[0]}: 2 added, 0 replaced, 0 unchanged\n"
        f"{files[1]}: 1 added, 0 replaced, 0 unchanged\n"
    )
    assert sorted(path.as_posix() for path in (tmp_path / "results").rglob("*.*")) == [
        str(tmp_path / name) for name in files
    ]
    lines = (tmp_path / files[0]).read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1]
    tables = [command("tables", f"--output_dir={folder}")[1] for folder in ("runs", "results")]
    assert tables[0] == tables[1] and "ER-Ring" in tables[0]
    assert publish()[1].count("0 added, 0 replaced") == 2


def test_a_run_of_a_modified_package_is_named(publish, tmp_path):
    modified = sample.changed(sample.record(method="derpp"), package_modified=True)
    write_record(modified, tmp_path / "runs" / "3")
    code, _, err = publish()
    assert code == 0 and "1 of 4 records" in err
    assert publish("--method=er_ring")[2] == ""


def test_flags_choose_among_the_runs(publish, tmp_path):
    assert publish("--method=er_ring", "--seeds=1", "--publish_dir=chosen")[0] == 0
    (path,) = tmp_path.glob("chosen/*/*")
    assert (path.name, json.loads(path.read_text())["seed"]) == ("er_ring.jsonl", 1)


def test_a_run_made_again_needs_overwrite(publish, tmp_path):
    publish()
    again = sample.changed(sample.record(method="finetune"), train_seconds=9.5)
    write_record(again, tmp_path / "runs" / "2")
    code, out, err = publish()
    assert (code, out) == (2, "")
    assert "seed 0 of finetune" in err and err.count("\n") == 1
    code, out, _ = publish("--overwrite")
    assert code == 0 and "finetune.jsonl: 0 added, 1 replaced, 0 unchanged" in out
    assert '"train_seconds":9.5' in (tmp_path / "results" / "permuted_digits-single" /
                                     "finetune.jsonl").read_text()  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--output_dir=none"], "no result.json"),
        (["--method=gem"], "no record below runs has that"),
        (["--publish_dir=/dev/null/x"], "choose another --publish_dir"),
        (["--publish_dir=runs/0/result.json"], "choose another --publish_dir"),
    ],
)
def test_bad_input(publish, argv, message):
    code, _, err = publish(*argv)
    assert code == 2
    assert message in err


def test_the_folder_belongs_to_this_command(command):
    assert "--publish_dir belongs to the command publish" in command("--publish_dir=x")[2]


def test_runs_on_a_data_set_by_name(command, tmp_path, monkeypatch):
    """Its files have no colon, and the flag that trained on it finds them."""
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "some data" / "pets 1.csv"
    table.parent.mkdir()
    table.write_text("age,label\n" + "".join(f"{i},{i % 4}\n" for i in range(40)))
    named = f"--dataset=csv:{table}"
    words = ("--method=finetune", named, "--num_tasks=2", "--hidden=4", "--progress=none")
    assert command(*words, "--output_dir=runs")[0] == 0
    code, out, _ = command("publish", "--output_dir=runs", named)  # Names a modified package.
    path = "results/csv_pets_1.csv-single/finetune.jsonl"
    assert (code, out) == (0, f"{path}: 1 added, 0 replaced, 0 unchanged\n")
    assert json.loads((tmp_path / path).read_text())["dataset"] == "csv:pets_1.csv"
    for other in ("tables", "report"):
        code, out, err = command(other, "--output_dir=results", named)
        assert (code, err) == (0, "")
    assert "csv:pets_1.csv" in (tmp_path / "report" / "report.html").read_text()
    assert command("tables", "--output_dir=results", "--dataset=csv:dogs.csv")[0] == 2
