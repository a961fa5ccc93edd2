"""The published records of this repository, and the tables that stand in its pages."""

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from docs.make.results import TIMED, put_results
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.record_lines import as_line, publish, read_lines
from nccl_tf.reports.records import Records
from studies.readings.__main__ import PLUGIN
from studies.step_sizes.__main__ import STUDY

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
FILES = sorted(RESULTS.rglob("*.jsonl"))
OF_STUDIES = sorted(ROOT.glob("studies/*/records/**/*.jsonl"))


@pytest.fixture(scope="module")
def runs():
    found = Records.below(RESULTS)
    assert found.broken == []
    return found.runs


@pytest.mark.records
def test_every_line_is_a_record_of_its_file(runs):
    assert len(runs) == sum(len(path.read_text().splitlines()) for path in FILES) > 400
    for path in FILES:
        for line in read_lines(path):
            stream = f"{line.record.dataset}-{line.record.head}"
            assert (stream, line.record.method) == (path.parent.name, path.stem), line.place


@pytest.mark.records
def test_every_line_of_records_is_written_as_it_was_read(restored_tables):
    """Of results and of studies; their settings today give the hash that they had then.

    Of several passes, those without `stores` are of runs that stored each of them.
    """
    load_plugins([*STUDY.plugins, str(PLUGIN)])
    count = 0
    for path in (*FILES, *OF_STUDIES):
        for line, text in zip(read_lines(path), path.read_text().splitlines(), strict=True):
            assert line.record is not None, line.problem
            assert as_line(line.record) == text, line.place
            settings = line.record.settings
            assert settings.digest() == line.record.settings_hash, line.place
            assert settings.stores is None or settings.epochs > 1, line.place
            count += 1
    assert count >= 1230


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
        "{} have no version of TensorFlow": sum(not r.versions["tensorflow"] for r in records),
        "{} do not name their device": sum(not r.device for r in records),
        "{} name a commit that the history has lost": sum(
            r.commit_in_history is False for r in records
        ),
    }
    for words, count in counts.items():
        assert words.format(count) in text
    assert sum(r.settings.precision == "mixed_bfloat16" for r in records) == 3
    assert "three runs are in bfloat16" in text
    on_gpus = [r for r in records if "GPU" in (r.device or "")]
    assert len(on_gpus) == 5 and not any(r.tensorfloat32 for r in on_gpus)
    assert "five, of the full ResNet-18 on split CIFAR-100, are of an H100" in text


def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout


@pytest.fixture(scope="module")
def history():
    """The commits that lead to this one; all of them, since a shallow clone proves nothing."""
    try:
        shallow = git("rev-parse", "--is-shallow-repository").strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("git, or the repository's history, is not there")
    assert shallow == b"false", "fetch the whole history: git fetch --unshallow"
    return set(git("rev-list", "HEAD").decode().split())


@pytest.fixture(scope="module")
def published():
    """Every published record, of the studies' methods too, as JSON."""
    paths = [*FILES, *OF_STUDIES]
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@pytest.mark.records
def test_the_history_has_the_commits_of_the_records_or_they_say_that_it_has_not(history, published):
    lost = [record for record in published if not record.get("commit_in_history", True)]
    assert len(lost) == 143 < len(published)
    for record in published:
        place = record["method"], record["settings_hash"], record["seed"], record["commit"]
        assert (record["commit"] in history) == record.get("commit_in_history", True), place
        assert record.get("costs_from_settings", record["commit"]) in {record["commit"], *history}
        assert not record.get("package_modified"), place


@pytest.mark.records
def test_the_records_have_their_costs_but_for_what_no_settings_tell(published):
    """State depends on the layers of a network in four methods, and in those of the studies."""
    without = {r["method"] for r in published if "bytes_stored" not in r}
    assert without & METHODS.keys() <= {"cn_dpm", "icarl", "lpr", "slda"}
    by_data = {r["method"] for r in published if r["task_steps"] and "examples_passed" not in r}
    assert by_data <= {"cn_dpm", "icarl", "gss_greedy", "orthog_subspace"}


@pytest.mark.records
def test_the_plugins_of_the_records_are_files_of_their_commits(history, published):
    named = {
        (record["commit"], *plugin)
        for record in published
        if record["commit"] in history
        for plugin in record["options"].get("plugins", {}).items()
    }
    assert len(named) > 1
    for commit, path, sha256 in named:
        assert hashlib.sha256(git("show", f"{commit}:{path}")).hexdigest() == sha256, (commit, path)


@pytest.mark.records
def test_the_tables_in_the_pages_are_up_to_date(runs):
    """`python -m docs.make.results` writes them."""
    timed = Records.required(ROOT / TIMED).records
    current = put_results(ROOT, [run.record for run in runs], timed, check=True)
    assert len(current) > 5 and all(current.values()), current
