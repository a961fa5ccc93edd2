"""Records below a folder: which are read, which are left out, how they are grouped and named."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.records.record import write_record
from nccl_tf.reports import records
from tests.experiment import sample


def test_titles_tell_settings_apart_where_the_name_does_not():
    runs = [
        sample.record(method="finetune"),
        sample.record(method="er_ring"),
        sample.record(method="er_ring", learning_rate=0.01),
        sample.record(method="er_ring", precision="mixed_bfloat16"),
        sample.changed(sample.record(), method="newer"),
    ]
    fast, slow = (run.settings_hash[:8] for run in runs[1:3])
    assert records.titles([[run] for run in runs]) == [
        "Fine-tune", f"ER-Ring {fast}", f"ER-Ring {slow}", "ER-Ring, mixed_bfloat16", "newer",
    ]  # fmt: skip


def test_records_are_found_at_any_depth(tmp_path):
    written = [sample.record(seed=k) for k in range(3)]
    for k, record in enumerate(written):
        write_record(record, tmp_path / "a" / f"b{k}" / "c")
    assert records.read_records(tmp_path) == (written, [])


def test_broken_and_repeated_records_are_left_out_and_named(tmp_path):
    record = sample.record()
    write_record(record, tmp_path / "a")
    write_record(record, tmp_path / "again")
    write_record(sample.record(seed=1), tmp_path / "b")
    (tmp_path / "b" / "result.json").write_text("{")
    found, broken = records.read_records(tmp_path)
    assert found == [record]
    assert len(broken) == 2
    assert "again/result.json is the same run" in broken[0]
    assert "b/result.json is not JSON" in broken[1]


def test_nothing_but_broken_records(tmp_path):
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(UserError, match=r"none of 1 records .* can be read"):
        records.read_records(tmp_path)


def test_a_folder_without_records(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=r"no result\.json"):
            records.read_records(folder)
