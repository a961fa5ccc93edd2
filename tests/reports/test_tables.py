"""The records below a folder, and the table of them."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.run.record import write_record
from nccl_tf.reports import tables
from nccl_tf.reports.generated_files import as_markdown
from tests.experiment import sample


def test_a_row_for_each_settings_in_the_registrys_order():
    runs = [
        sample.record([[0.8, 0.1], [0.6, 0.8]], seed=0, method="nccl_ring"),
        sample.record([[0.8, 0.1], [0.6, 0.6]], seed=1, method="nccl_ring"),
        sample.record([[0.9]], method="finetune"),
        sample.record([[0.9, 0.1], [0.8, 0.8]], method="nccl_ring", learning_rate=0.01),
    ]
    rows = [line.split(" | ") for line in as_markdown(tables.results_table(runs)).splitlines()[2:]]
    assert [[cell.strip("| ") for cell in row][2:9] for row in rows] == [
        ["10 / 0 / 1", "Fine-tune", "0.1", "-", "1", "90.0", "-"],
        ["10 / 0 / 2", "NCCL + Ring", "0.01", "500", "1", "80.0", "0.100"],
        ["10 / 0 / 2", "NCCL + Ring", "0.1", "500", "2", "65.0 ± 5.0", "0.200 ± 0.000"],
    ]


def test_rows_that_would_begin_alike_say_what_sets_them_apart():
    runs = [
        sample.record(method="nccl_ring", **given)
        for given in ({}, {"beta_max": 0.05}, {"smoothness": 2.0, "delta": 0.1}, {"hidden": [8]})
    ]
    runs.append(sample.record(method="nccl_ring", learning_rate=0.01, hidden=[8]))
    older = {name: v for name, v in runs[0]["settings"].items() if name != "schedule"}
    runs[0] = {**runs[0], "settings": older}
    names = {row[3] for row in tables.results_table(runs).rows}
    assert names == {
        "NCCL + Ring", "NCCL + Ring, beta_max 0.05", "NCCL + Ring, smoothness 2.0, delta 0.1",
        "NCCL + Ring, hidden [8]",
    }  # fmt: skip


def test_titles_tell_settings_apart_where_the_name_does_not():
    runs = [
        sample.record(method="finetune"),
        sample.record(method="er_ring"),
        sample.record(method="er_ring", learning_rate=0.01),
        sample.record(method="er_ring", precision="mixed_bfloat16"),
        {**sample.record(), "method": "newer"},
    ]
    fast, slow = (run["settings_hash"][:8] for run in runs[1:3])
    assert tables.titles([[run] for run in runs]) == [
        "Fine-tune", f"ER-Ring {fast}", f"ER-Ring {slow}", "ER-Ring, mixed_bfloat16", "newer",
    ]  # fmt: skip


def test_runs_for_tuning_are_kept_on_request():
    runs = [sample.record(), sample.record([[0.9]], tasks="tuning")]
    assert tables.by_settings(runs) == [runs[:1]]
    assert sorted(map(len, tables.by_settings(runs, tuning=True))) == [1, 1]


def test_the_terminal_gets_the_same_rows_in_80_columns():
    runs = [
        sample.record([[0.8, 0.1], [0.6, 0.8]], seed=0, method="stable_er_reservoir"),
        sample.record([[0.8, 0.1], [0.6, 0.6]], seed=1, method="stable_er_reservoir"),
        sample.record([[0.9]], method="finetune"),
    ]
    lines = tables.results_text(runs).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("permuted_digits (single-head), tasks: 10 / 0 / 1")
    words = lines[-1].split()
    assert words[:2] == ["Stable", "ER-Reservoir"]
    assert " ".join(words[4:-1]) == "2 65.0 ± 5.0 0.200 ± 0.000"


def test_records_are_found_at_any_depth(tmp_path):
    written = [sample.record(seed=k) for k in range(3)]
    for k, record in enumerate(written):
        write_record(record, tmp_path / "a" / f"b{k}" / "c")
    assert tables.read_records(tmp_path) == (written, [])


def test_broken_and_repeated_records_are_left_out_and_named(tmp_path):
    record = sample.record()
    write_record(record, tmp_path / "a")
    write_record(record, tmp_path / "again")
    write_record(sample.record(seed=1), tmp_path / "b")
    (tmp_path / "b" / "result.json").write_text("{")
    records, broken = tables.read_records(tmp_path)
    assert records == [record]
    assert len(broken) == 2
    assert "again/result.json is the same run" in broken[0]
    assert "b/result.json is not JSON" in broken[1]


def test_nothing_but_broken_records(tmp_path):
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(UserError, match=r"all 1 records .* are broken"):
        tables.read_records(tmp_path)


def test_a_folder_without_records(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=r"no result\.json"):
            tables.read_records(folder)
