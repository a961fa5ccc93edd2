"""The command `study`: its page, its pictures, and what it refuses."""

from pathlib import Path

import pytest

from nccl_tf.experiment.run.record import run_folder, write_record
from tests.experiment.study import plans


@pytest.fixture
def study(command, tmp_path, monkeypatch):
    """A plan with one finished run below `results`; runs the command on it."""
    monkeypatch.chdir(tmp_path)
    cell = plans.cells(tmp_path)["digits", "mc_sgd"]
    plans.choose(cell, learning_rate=0.1)
    write_record(plans.record(cell, 0, 0.6), tmp_path / "results" / "0")
    return lambda *argv: command("study", "--plan=study/plan.toml", *argv)


def test_the_page_is_written_and_checked(study, tmp_path):
    argv = ("--output_dir=results", "--docs=docs/study.md")
    assert study(*argv, "--check") == (
        1, "docs/study.md is not up to date: run again without --check\n", "",
    )  # fmt: skip
    assert not (tmp_path / "docs").exists()
    assert study(*argv)[:2] == (0, "docs/study.md: written\n")
    assert study(*argv, "--check")[:2] == (0, "docs/study.md: is up to date\n")
    assert study("--output_dir=results")[1] == (tmp_path / "docs" / "study.md").read_text()


def test_published_records_are_shown_beside_runs(study, tmp_path):
    cell = plans.cells(tmp_path)["digits", "nccl"]
    plans.choose(cell, learning_rate=0.1, delta=0.1)
    write_record(plans.record(cell, 1, 0.5), tmp_path / "runs" / "1")
    page = study()[1]
    assert "| Merged | learning_rate 0.1 | 60.0 |" in page
    assert "| NCCL + Reservoir | learning_rate 0.1, delta 0.1 | 50.0 |" in page


def test_a_run_s_own_record_stands_for_the_published_one(study, tmp_path):
    cell = plans.cells(tmp_path)["digits", "mc_sgd"]
    write_record(plans.record(cell, 0, 0.7), tmp_path / "runs" / "0")
    assert "| Merged | learning_rate 0.1 | 70.0 |" in study("--output_dir=runs")[1]
    assert "| Merged | learning_rate 0.1 | 60.0 |" in study("--output_dir=results")[1]


def test_the_page_says_by_which_command_it_is_made(study, tmp_path):
    (tmp_path / "more.py").write_text("")
    about = " ".join(study("--plugin=more.py", "--output_dir=results")[1].split())
    flags = "--plan=study/plan.toml --plugin=more.py"
    assert f"`python run.py study --run_missing {flags}`" in about
    assert f"`python run.py study --output_dir=results {flags} --docs=FILE`" in about


def test_a_broken_record_is_no_finished_run(study, tmp_path):
    """Of a run that has to be made it is refused, and elsewhere it is named."""
    cell = plans.cells(tmp_path)["digits", "mc_sgd"]
    place = run_folder(cell.chosen()[1], "runs", 0) / "result.json"
    argv = ("--run_missing", "--setting=digits", "--system=mc_sgd", "--publish_dir=none")
    for path in (tmp_path / "runs" / "elsewhere" / "result.json", place):
        path.parent.mkdir(parents=True)
        path.write_text("{")
    code, _, err = study(*argv)
    assert code == 2 and "left out 2 broken of 2" in err
    assert f"error: {place} is not JSON" in err and "delete it and run again" in err


def test_the_winner_has_a_table_and_a_picture(study, tmp_path):
    change = "most_trials = 4\n", 'most_trials = 4\nwinner = "mc_sgd"\n'
    cell = plans.cells(tmp_path, change, ("digits = [0]", "digits = [0, 1]"))["digits", "nccl"]
    plans.choose(cell, learning_rate=0.1, delta=0.1)
    merged = plans.cells(tmp_path, change, ("digits = [0]", "digits = [0, 1]"))["digits", "mc_sgd"]
    for number, made in enumerate((plans.record(merged, 1, 0.6), *(
        plans.record(cell, seed, 0.5) for seed in (0, 1)
    ))):  # fmt: skip
        write_record(made, tmp_path / "results" / f"more{number}")
    page = tmp_path / "answer.md"
    page.write_text("<!-- winner:begin -->\n<!-- winner:end -->\n")
    argv = ("--output_dir=results", "--readme=answer.md")
    assert study(*argv, "--check")[:2] == (
        1, "answer.md is not up to date: run again without --check\n"
    )  # fmt: skip
    assert study(*argv)[:2] == (0, "answer.md: written\n")
    assert "| NCCL + Reservoir | 1 / 0 / 0 | better*: +10.0 ± 0.0" in page.read_text()
    assert study(*argv, "--docs=all.md", "--check")[:2] == (
        1, "answer.md: is up to date\nall.md is not up to date: run again without --check\n",
    )  # fmt: skip
    assert study("--output_dir=results", "--figure_dir=images")[1].split()[-1] == (
        "images/study_winner.pdf"
    )


def test_pictures_are_of_the_settings_with_runs(study, tmp_path):
    assert study("--output_dir=results", "--figure_dir=images")[:2] == (
        0, "see images/study_digits.png\nsee images/study_digits.pdf\n",
    )  # fmt: skip
    names = sorted(path.name for path in (tmp_path / "images").iterdir())
    assert names == ["study_digits.pdf", "study_digits.png"]


def test_what_the_plan_reports_is_published_alone(study, command, tmp_path):
    other = plans.record(plans.cells(tmp_path)["digits", "mc_sgd"], 7, 0.6)
    write_record(other, tmp_path / "results" / "7")
    code, out, _ = command(
        "publish", "--plan=study/plan.toml", "--output_dir=results", "--publish_dir=kept"
    )
    assert (code, out) == (
        0, "kept/permuted_digits-single/mc_sgd.jsonl: 1 added, 0 replaced, 0 unchanged\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--check"], "--check compares a file: give --docs"),
        (["--check", "--docs=page.md", "--figure_dir=x"], "leave --figure_dir out"),
        (["--run_missing", "--seeds=3"], "--seeds has no effect on the command study"),
        (["--run_missing", "--overwrite"], "--overwrite has no effect on the command"),
        (["--setting=digits"], "--setting is about the runs that --run_missing makes"),
        (["--threads=1"], "--threads is about the runs that --run_missing makes"),
        (["--run_missing", "--docs=page.md"], "--run_missing makes runs, and no page"),
        (["--run_missing", "--readme=page.md"], "--run_missing makes runs, and no page"),
        (["--readme=nothing.md"], "the plan names no winner"),
        (["--run_missing", "--setting=letters"], "--setting=letters is not in the plan"),
        (["--plan=nothing.toml"], "cannot read --plan=nothing.toml"),
    ],
)
def test_what_has_no_meaning_is_refused(study, argv, message):
    code, _, err = study(*argv)
    assert code == 2
    assert message in err
    assert not Path("x").exists()


def test_a_plan_is_needed(command):
    assert "give --plan=flags/comparison/plan.toml" in command("study")[2]
