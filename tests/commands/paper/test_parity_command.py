"""The commands `parity`, `sweep` and `report` from the command line, on records of small runs."""

import json

import pytest

from nccl_tf.commands.paper.parity import select_cells
from nccl_tf.records.record import write_record
from nccl_tf.records.settings import run_folder
from tests.commands.paper.test_parity import find_cell, record


@pytest.fixture
def results(tmp_path):
    """Records of two cells of T9: one agrees, one differs."""
    for method, accuracy in (("nccl_ring", 0.838), ("er_ring", 0.9)):
        cell = find_cell("T9", method)
        for seed in range(3):
            write_record(record(cell, seed, accuracy), tmp_path / "results" / method / str(seed))
    return tmp_path / "results"


def test_json_is_one_object_with_every_cell_and_nothing_else(command, results):
    (results / "broken").mkdir()
    (results / "broken" / "result.json").write_text("{")
    code, out, err = command("parity", "--table=T9", "--json", f"--output_dir={results}")
    assert code == 0
    assert "left out 1 of 7" in err
    printed = json.loads(out)
    assert list(printed) == ["table", "cells"]
    assert printed["table"] == "T9"
    assert len(printed["cells"]) == 38
    found = {(c["method"], c["memory_size"], c["metric"]): c for c in printed["cells"]}
    cell = found["nccl_ring", 5, "accuracy"]
    assert set(cell) == {
        "dataset", "memory_size", "method", "metric", "published", "published_std", "ours",
        "ours_std", "seeds", "difference", "verdict", "doubt",
    }  # fmt: skip
    assert (cell["published"], cell["published_std"], cell["seeds"]) == (83.76, 0.21, 3)
    assert (cell["verdict"], cell["doubt"]) == ("agrees", None)
    assert cell["difference"] == pytest.approx(83.8 - 83.76)
    doubtful = found["er_ring", 5, "accuracy"]
    assert doubtful["verdict"] == "differs" and doubtful["doubt"].startswith("copied")
    assert found["mer", 1, "accuracy"]["ours"] is None


def test_seeds_choose_the_runs(command, results):
    argv = ["parity", "--table=T9", "--json", f"--output_dir={results}"]
    out = command(*argv, "--method=nccl_ring", "--seeds=0,2")[1]
    assert max(cell["seeds"] for cell in json.loads(out)["cells"]) == 2


def test_strict_fails_where_a_cell_differs(command, results):
    for argv in (["--json"], []):
        argv = ["parity", "--table=T9", "--strict", f"--output_dir={results}", *argv]
        assert command(*argv)[0] == 1
        assert command(*argv, "--method=mer")[0] == 0


def test_the_tables_with_runs_are_printed(command, results):
    code, text, _ = command("parity", f"--output_dir={results}")
    assert code == 0
    assert "### T9: " in text and "### T4: " in text  # T4 takes the time of the same runs.
    assert "### T6: " not in text
    assert "### T6: " in command("parity", "--table=T6", f"--output_dir={results}")[1]


def test_run_missing_runs_what_cells_lack(command, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "nccl_tf.commands.paper.parity_command.finish", lambda runs, given, say: asked.extend(runs)
    )
    cell = find_cell("T9", "er_ring")
    write_record(record(cell, 1, 0.9), tmp_path / "a")
    argv = ["parity", "--table=T9", "--run_missing", f"--output_dir={tmp_path}"]
    assert command(*argv, "--method=er_ring", "--seeds=0,1,2")[0] == 0
    runs = {(run.settings.digest(), run.seed) for run in asked}
    other = find_cell("T9", "er_ring", memory=1).settings().digest()
    assert runs == {
        (cell.settings().digest(), 0), (cell.settings().digest(), 2),
        *((other, seed) for seed in range(3)),
    }  # fmt: skip
    asked.clear()
    assert command(*argv, "--method=finetune")[0] == 0
    assert [run.seed for run in asked] == [0, 1, 2, 3, 4]  # Once for both memory sizes.
    # Made from these in another process.
    assert command(*argv, "--method=agem", "--manual_dir=there", "--save_model")[0] == 0
    values = asked[-1].flag_values
    assert (values["manual_dir"], values["save_model"], values["seeds"]) == ("there", True, None)
    assert {c.method for c in select_cells("T9", method="finetune")} == {"finetune"}


def test_a_broken_record_is_no_finished_run(command, tmp_path):
    settings = select_cells("T9", method="finetune")[0].settings()
    place = run_folder(settings, tmp_path, 0)
    place.mkdir(parents=True)
    (place / "result.json").write_text("{")
    argv = ["--run_missing", "--method=finetune", "--seeds=0", f"--output_dir={tmp_path}"]
    code, _, err = command("parity", "--table=T9", *argv)
    assert code == 2 and f"error: {place / 'result.json'} is not JSON" in err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["parity", "--table=T99"], "unknown table 'T99'"),
        (["parity", "--json"], "give --table too"),
        (["parity", "--run_missing"], "give --table too"),
        (["parity", "--table=T9", "--run_missing", "--workers=0"], "an integer of at least 1"),
        (["parity", "--workers=2"], "--workers is about the runs that --run_missing makes"),
        (["parity", "--learning_rate=1"], "--learning_rate has no effect on the command parity"),
        (["--strict"], "belongs to the command parity"),
        (["sweep"], "received 0 grids"),
    ],
)
def test_bad_input(command, tmp_path, argv, said):
    code, _, err = command(*argv, f"--output_dir={tmp_path}")
    assert code == 2
    assert said in err
