"""Published records: nothing is lost in a line, and nothing is published over another record."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_tf.errors import UserError
from nccl_tf.records.record import write_record
from nccl_tf.reports.record_lines import (
    as_line,
    publish,
    read_lines,
    record_key,
)
from nccl_tf.reports.records import Records
from tests.experiment import sample
from tests.reports.figures import diagnostics_sample


def publish_all(records, folder, **kwargs):
    """Publish; return what each file's records are when read, and the counts."""
    counts = publish(records, folder, **kwargs)
    read = {path: read_lines(path) for path in counts}
    assert not [line.problem for lines in read.values() for line in lines if line.problem]
    return {path: [line.record for line in lines] for path, lines in read.items()}, counts


@settings(max_examples=25, deadline=None)
@given(data=st.data(), tasks=st.integers(1, 5))
def test_a_line_gives_the_record_again(tmp_path_factory, data, tasks):
    row = st.lists(st.floats(0, 1), min_size=tasks, max_size=tasks)
    values = np.array(data.draw(st.lists(row, min_size=tasks, max_size=tasks)))
    values[np.triu_indices(tasks, 2)] = np.nan
    record = sample.changed(
        sample.record(values, **data.draw(st.sampled_from([{}, {"average_weights": 0.5}]))),
        train_seconds=data.draw(st.floats(0, 1e300)),
        further=data.draw(st.lists(st.integers(0, 9))),
        diagnostics={"tasks": data.draw(st.lists(st.floats(allow_nan=False, width=32)
                                                 .filter(lambda x: abs(x) < 1e30)))},
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("lines")
    ((path, (read,)),) = publish_all([record], folder)[0].items()
    assert read.as_json() == record.as_json()
    assert list(read.versions) == list(record.versions)
    assert (
        json.loads(path.read_text()) == record.as_json() and len(path.read_text().splitlines()) == 1
    )


def test_lines_are_sorted_by_settings_and_seed(tmp_path):
    records = [
        sample.record(seed=seed, method=method, learning_rate=rate)
        for seed in (10, 2, 0)
        for method in ("er_ring", "finetune")
        for rate in (0.1, 0.01)
    ]
    read, counts = publish_all(records[:5], tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in read) == [
        "permuted_digits-single/er_ring.jsonl", "permuted_digits-single/finetune.jsonl",
    ]  # fmt: skip
    assert sum(count.added for count in counts.values()) == 5
    later, counts = publish_all(records, tmp_path)
    assert sum(count.added for count in counts.values()) == 7
    assert sum(count.unchanged for count in counts.values()) == 5
    for lines in later.values():
        keys = [record_key(record) for record in lines]
        assert len(keys) == 6 and keys == sorted(keys)
    publish(records[::-1], tmp_path / "other")
    for path in later:
        other = tmp_path / "other" / path.relative_to(tmp_path)
        assert other.read_bytes() == path.read_bytes()


def test_nothing_is_published_through_a_link(tmp_path):
    record = sample.record(seed=0)
    (tmp_path / "mine").mkdir()
    place = tmp_path / "published" / f"{record.dataset}-{record.head}"
    place.parent.mkdir()
    place.symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match=f"{place.name} is a link.*--publish_dir"):
        publish([record], tmp_path / "published")
    assert not list((tmp_path / "mine").iterdir())


def test_those_who_publish_at_the_same_time_lose_nothing(tmp_path):
    records = [sample.record(seed=seed) for seed in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda record: publish([record], tmp_path), records))
    (path,) = tmp_path.rglob("*.jsonl")
    assert {line.record.seed for line in read_lines(path)} == set(range(24))


def test_what_a_killed_publish_left_is_removed_and_nothing_else(tmp_path):
    publish_all([sample.record()], tmp_path)
    (folder,) = tmp_path.iterdir()
    before = sorted(path.name for path in folder.iterdir())
    (folder / f"{before[0]}.abc.nccl_tf.tmp").touch(), (folder / "mine.tmp").touch()
    publish_all([sample.record()], tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "mine.tmp"])


def test_another_record_of_the_run_is_refused_or_replaces_it(tmp_path):
    old, other = (diagnostics_sample.record(seed=seed) for seed in (0, 1))
    slower = sample.changed(old, train_seconds=9.0, diagnostics={"tasks": []})
    (path,) = publish([old, other], tmp_path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"seed 0 of nccl_ring .* with another record.*--overwrite"):
        publish([sample.record(method="finetune"), slower], tmp_path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.rglob("*.jsonl"))) == 1  # Not the other method's either.
    read, counts = publish_all([slower], tmp_path, overwrite=True)
    assert counts[path] == (0, 1, 0)
    assert sorted(read[path], key=record_key) == sorted([slower, other], key=record_key)


def test_what_is_published_already_is_not_written_again(tmp_path):
    record = diagnostics_sample.record()
    (path,) = publish([record], tmp_path)
    # A space that only a rewritten line would lose.
    path.write_bytes(path.read_bytes().replace(b",", b", ", 1))
    before = path.read_bytes()
    assert publish([record], tmp_path)[path] == (0, 0, 1)
    assert path.read_bytes() == before
    publish([sample.record(seed=5)], tmp_path)
    assert path.read_bytes() != before


@pytest.mark.parametrize("name", ["method", "dataset", "head"])
@pytest.mark.parametrize("value", ["../up", "/etc/x", "", ".", "a\0b"])
def test_names_that_would_leave_the_folder(tmp_path, name, value):
    with pytest.raises(UserError, match="cannot be published"):
        publish([sample.changed(sample.record(), **{name: value})], tmp_path / "results")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda line: line[:-5], "is not JSON"),
        (lambda line: "", "is not JSON"),
        (lambda line: "\udcff", "is not JSON"),
        (lambda line: "[]", "received a list"),
        (lambda line: line.replace('"schema_version":1', '"schema_version":2'), "schema_version"),
        (lambda line: line.replace('"batch_size":10', '"batch_size":11'), "settings_hash"),
        (lambda line: line.replace('"seed":1', '"seed":null'), "'seed' is None"),
        (lambda line: line.replace('"train_seconds":1.5', '"train_seconds":NaN'), "NaN"),
        (
            lambda line: line.replace('"evaluated_tasks":3', '"evaluated_tasks":2'),
            "evaluated_tasks",
        ),
        (lambda line: line.replace('"evaluated_tasks":3', '"evaluated_tasks":9e9'), "9000000000"),
        (
            lambda line: line.replace('"accuracy_matrix":[', '"accuracy_matrix":[5,'),
            "of another kind",
        ),
        (lambda line: line.replace('"accuracy_matrix":[', '"accuracy_matrix":[[],'), "3 x 3"),
    ],
)
def test_a_broken_line_is_named_and_the_others_are_read(tmp_path, change, reason):
    records = [sample.record(seed=seed) for seed in range(3)]
    (path,) = publish(records, tmp_path)
    lines = path.read_text().splitlines()
    lines[1] = change(lines[1])
    path.write_text("\n".join(lines) + "\n", errors="surrogateescape")
    found = Records.below(tmp_path)
    runs, (problem,) = found.runs, found.broken
    assert [run.record for run in runs] == [records[0], records[2]]
    assert problem.startswith(f"{path}:2 ") and reason in problem
    assert "restore the line" in problem
    before = path.read_bytes()
    with pytest.raises(UserError, match="cannot add to"):
        publish(records, tmp_path)
    assert path.read_bytes() == before


def test_a_line_that_stands_twice(tmp_path):
    (path,) = publish([sample.record()], tmp_path)
    path.write_text(path.read_text() * 2)
    found = Records.below(tmp_path)
    runs, (problem,) = found.runs, found.broken
    assert len(runs) == 1 and problem.startswith(f"{path}:2 is the same run")
    with pytest.raises(UserError, match="the same run as another line"):
        publish([sample.record(seed=1)], tmp_path)


def test_folders_of_runs_and_published_records_are_read_together(tmp_path):
    records = [sample.record(seed=seed) for seed in range(3)]
    folder = write_record(records[0], tmp_path / "runs" / "a").parent
    publish(records[1:], tmp_path)
    write_record(records[2], tmp_path / "runs" / "b")
    found = Records.below(tmp_path)
    runs, (problem,) = found.runs, found.broken
    assert [(run.record.seed, run.folder) for run in runs] == [(1, None), (2, None), (0, folder)]
    assert "b/result.json is the same run as another record" in problem


def test_nan_is_never_published(tmp_path):
    with pytest.raises(ValueError):
        as_line(sample.changed(sample.record(), train_seconds=float("nan")))
