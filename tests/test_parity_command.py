"""The commands `parity`, `sweep` and `report` from the command line, on records of small runs."""

import json

import pytest

from nccl_tf.records.record import run_folder, write_record
from nccl_tf.reports.paper.parity import select_cells
from tests.reports.paper.test_parity import find_cell, record


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


def test_seeds_choose_the_runs_and_json_writes_no_file(command, results, tmp_path):
    argv = ["parity", "--table=T9", "--json", f"--output_dir={results}"]
    out = command(*argv, "--method=nccl_ring", "--seeds=0,2")[1]
    assert max(cell["seeds"] for cell in json.loads(out)["cells"]) == 2
    code, _, err = command(*argv, f"--readme={tmp_path / 'page.md'}", "--check")
    assert code == 2 and "leave one out" in err


def test_strict_fails_where_a_cell_differs(command, results):
    for argv in (["--json"], []):
        argv = ["parity", "--table=T9", "--strict", f"--output_dir={results}", *argv]
        assert command(*argv)[0] == 1
        assert command(*argv, "--method=mer")[0] == 0


def test_the_tables_with_runs_are_put_into_a_file(command, results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Results\n\n<!-- parity:begin -->\n<!-- parity:end -->\n")
    argv = ["parity", f"--output_dir={results}", f"--readme={page}"]
    assert command(*argv, "--check")[0] == 1
    assert command(*argv)[0] == 0
    assert command(*argv, "--check")[0] == 0
    text = page.read_text()
    assert "### T9: " in text and "### T4: " in text  # T4 takes the time of the same runs.
    assert "### T6: " not in text


MARKS = "<!-- parity:begin -->\n<!-- parity:end -->\n"


def test_a_folder_has_a_page_for_each_stream(command, results, tmp_path):
    pages = {tmp_path / f"{name}.md" for name in ("index", "permuted_mnist", "rotated_mnist")}
    for page in pages:
        page.write_text(MARKS)
    argv = ["parity", f"--output_dir={results}", f"--readme={tmp_path}"]
    assert command(*argv, "--check")[0] == 1
    assert all(page.read_text() == MARKS for page in pages)
    code, out, _ = command(*argv)
    assert code == 0 and {line.removesuffix(": written") for line in out.split("\n") if line} == {
        str(page) for page in pages
    }
    assert command(*argv, "--check")[0] == 0
    index, permuted, rotated = (page.read_text() for page in sorted(pages))
    # Of T9's 38 cells 19 are doubtful, ER-Ring's among them; NCCL + Ring has runs.
    title = "T9: permuted MNIST, 10,000 examples a task"
    assert f"| [permuted_mnist](permuted_mnist.md), {title} | 1 | 1 | 0 | 17 | 0 | 19 |" in index
    # T1, T5 and T9 print numbers of the same runs.
    totals = {
        name: [int(n) for n in row.split("|")[2:-1]]
        for row in index.splitlines()
        for name in ("all cells", "all numbers, each once")
        if row.startswith(f"| {name} ")
    }
    assert sum(totals["all cells"]) == 337 + 16
    assert all(once <= n for n, once in zip(*totals.values(), strict=True))
    assert sum(totals["all numbers, each once"]) < 337
    assert "| split_cifar10, T12: split CIFAR-10, memory of 500 | 0 | 0 | 0 | 6 | 4 |" in index
    assert "### T9: " in permuted and "split_mnist" not in permuted
    assert "No run of ours" in rotated
    permuted_page = tmp_path / "permuted_mnist.md"
    permuted_page.write_text(permuted.replace("agrees", "differs"))
    assert command(*argv, "--check")[0] == 1


def test_sentences_on_nccl_are_put_between_their_marks(command, results, tmp_path):
    marks = "".join(
        f"<!-- nccl_{n}:begin -->\n<!-- nccl_{n}:end -->\n" for n in ("table", "verdicts")
    )
    page = tmp_path / "README.md"
    page.write_text(f"# Title\n{marks}my own text\n")
    argv = ["parity", f"--output_dir={results}", f"--readme={page}"]
    assert command(*argv, "--check")[0] == 1
    assert command(*argv)[0] == 0 and command(*argv, "--check")[0] == 0
    text = page.read_text()
    assert "**permuted MNIST**: accuracy agrees in 1 of 1" in text and "### T9" not in text
    assert text.endswith("my own text\n")
    # With a choice of cells the sentences would count these alone.
    code, _, err = command(*argv, "--table=T9")
    assert code == 2 and "parity:begin" in err
    page.write_text(text.replace("<!-- nccl_table:end -->", ""))
    code, _, err = command(*argv)
    assert code == 2 and "nccl_table" in err


def test_the_index_of_a_folder_has_them_too(command, results, tmp_path):
    for name in ("index", "permuted_mnist"):
        (tmp_path / f"{name}.md").write_text(MARKS)
    index = tmp_path / "index.md"
    index.write_text(f"<!-- nccl_verdicts:begin -->\n<!-- nccl_verdicts:end -->\n{MARKS}")
    argv = ["parity", f"--output_dir={results}", f"--readme={tmp_path}"]
    assert command(*argv)[0] == 0 and command(*argv, "--check")[0] == 0
    index.write_text(index.read_text().replace("agrees in 1 of 1", "agrees in 2 of 2"))
    assert command(*argv, "--check")[0] == 1


def test_a_stream_with_runs_has_to_have_a_page(command, results, tmp_path):
    (tmp_path / "index.md").write_text(MARKS)
    argv = ["parity", f"--output_dir={results}", f"--readme={tmp_path}"]
    code, _, err = command(*argv)
    assert code == 2 and "runs of permuted_mnist but no page" in err
    assert (tmp_path / "index.md").read_text() == MARKS


def test_a_folder_takes_every_table(command, tmp_path):
    argv = ["parity", "--table=T9", "--method=mer", f"--readme={tmp_path}"]
    code, _, err = command(*argv, f"--output_dir={tmp_path}")
    assert code == 2 and "leave out --table and --method, or name a file" in err


def test_run_missing_runs_what_cells_lack(command, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "nccl_tf.commands.parity.finish", lambda runs, given, say: asked.extend(runs)
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
        (["parity", "--check"], "give --readme"),
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
