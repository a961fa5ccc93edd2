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
    found = records.Records.required(tmp_path)
    assert (found.records, found.broken) == (written, [])


def test_broken_and_repeated_records_are_left_out_and_named(tmp_path):
    record = sample.record()
    write_record(record, tmp_path / "a")
    write_record(record, tmp_path / "again")
    write_record(sample.record(seed=1), tmp_path / "b")
    (tmp_path / "b" / "result.json").write_text("{")
    found = records.Records.required(tmp_path)
    broken = found.broken
    assert found.records == [record]
    assert len(broken) == 2
    assert "again/result.json is the same run" in broken[0]
    assert "b/result.json is not JSON" in broken[1]


def test_nothing_but_broken_records(tmp_path):
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(UserError, match=r"none of 1 records .* can be read"):
        records.Records.required(tmp_path)


def test_a_folder_without_records(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=r"no result\.json"):
            records.Records.required(folder)


def test_what_cannot_be_listed_is_no_empty_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot list .*file \(Not a directory\)"):
        records.Records.required(tmp_path / "file")


def test_some_of_a_folder(tmp_path):
    methods = ("er_ring", "agem", "finetune")
    made = [sample.record(seed=seed, method=name) for seed in (1, 0) for name in methods]
    made.append(sample.record(method="agem", tasks="tuning"))
    for number, record in enumerate(made):
        write_record(record, tmp_path / str(number))
    (tmp_path / "0" / "result.json").write_text("{")
    found = records.Records.below(tmp_path)
    assert found.of(seeds=[1], method="er_ring").runs == [] and len(found.broken) == 1
    some = found.of(dataset="permuted_digits", method="er_ring,agem")
    assert some.broken == found.broken
    groups = [[(r.method, r.seed) for r in seeds] for seeds in some.by_settings()]
    assert groups == [[("er_ring", 0)], [("agem", 0), ("agem", 1)]]
    assert len(some.by_settings(tuning=True)) == 3
    assert found.of(dataset="split_digits").runs == []
