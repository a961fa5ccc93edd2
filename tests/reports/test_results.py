"""The published records of this repository, and the tables that stand in its pages."""

import re
from pathlib import Path

import pytest

from nccl_tf.records.settings import Settings
from nccl_tf.reports.record_lines import publish, read_lines
from nccl_tf.reports.records import find_runs

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
FILES = sorted(RESULTS.rglob("*.jsonl"))


@pytest.fixture(scope="module")
def runs():
    runs, broken = find_runs(RESULTS)
    assert broken == []
    return runs


@pytest.mark.records
def test_every_line_is_a_record_of_its_file(runs):
    assert len(runs) == sum(len(path.read_text().splitlines()) for path in FILES) > 400
    for path in FILES:
        for line in read_lines(path):
            stream = f"{line.record['dataset']}-{line.record['head']}"
            assert (stream, line.record["method"]) == (path.parent.name, path.stem), line.place


@pytest.mark.records
def test_every_record_has_the_hash_of_its_settings_today(runs):
    """A setting that is added later does not rename the runs made before."""
    for run in runs:
        settings = Settings(**run.record["settings"])
        assert settings.digest() == run.record["settings_hash"], run.folder


@pytest.mark.records
def test_publishing_what_is_read_gives_the_same_bytes(runs, tmp_path):
    publish([run.record for run in reversed(runs)], tmp_path)
    assert len(list(tmp_path.rglob("*.jsonl"))) == len(FILES)
    for path in FILES:
        again = tmp_path / path.relative_to(RESULTS)
        assert again.read_bytes() == path.read_bytes(), path


@pytest.mark.records
def test_the_counts_of_records_in_the_folders_readme(runs):
    text = " ".join((RESULTS / "README.md").read_text().split())
    records = [run.record for run in runs]
    counts = {
        "{} have no version of TensorFlow": sum(not r["versions"]["tensorflow"] for r in records),
        "{} do not name their device": sum(not r["device"] for r in records),
    }
    for words, count in counts.items():
        assert words.format(count) in text
    assert sum(r["settings"].get("precision") == "mixed_bfloat16" for r in records) == 3
    assert "three runs are in bfloat16" in text


README = ROOT / "README.md"
(SHOWN,) = re.findall(r"--settings=\S+", README.read_text())


@pytest.mark.records
@pytest.mark.parametrize(
    ("words", "page"),
    [
        (["tables", SHOWN], README),
        (["tables"], ROOT / "docs" / "results.md"),
        (["parity"], ROOT / "docs" / "results"),
    ],
    ids=["readme", "results", "parity"],
)
def test_the_tables_in_the_pages_are_up_to_date(command, words, page):
    code, out, err = command(*words, f"--output_dir={RESULTS}", f"--readme={page}", "--check")
    assert (code, err) == (0, ""), out
