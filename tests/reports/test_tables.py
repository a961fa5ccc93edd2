"""The table of results and its place in a README."""

import pytest

from nccl_tf.errors import UserError
from nccl_tf.experiment.records import write_record
from nccl_tf.reports import tables
from tests.experiment import sample

README = f"# Title\n\n{tables.BEGIN}\nold\n{tables.END}\n\nmore\n"


def test_a_row_for_each_settings_in_the_registrys_order():
    runs = [
        sample.record([[0.8, 0.1], [0.6, 0.8]], seed=0, method="nccl_ring"),
        sample.record([[0.8, 0.1], [0.6, 0.6]], seed=1, method="nccl_ring"),
        sample.record([[0.9]], method="finetune"),
        sample.record([[0.9, 0.1], [0.8, 0.8]], method="nccl_ring", learning_rate=0.01),
    ]
    rows = [line.split(" | ") for line in tables.results_table(runs).splitlines()[2:]]
    assert [[cell.strip("| ") for cell in row][2:9] for row in rows] == [
        ["10 / 0 / 1", "Fine-tune", "0.1", "-", "1", "90.0", "-"],
        ["10 / 0 / 2", "NCCL + Ring", "0.01", "500", "1", "80.0", "0.100"],
        ["10 / 0 / 2", "NCCL + Ring", "0.1", "500", "2", "65.0 ± 5.0", "0.200 ± 0.000"],
    ]


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


def test_readme_is_replaced_between_its_marks_only(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(README)
    assert not tables.update_readme(path, "| new |\n", check=True)
    assert path.read_text() == README
    assert not tables.update_readme(path, "| new |\n", check=False)
    assert path.read_text() == README.replace("old", "| new |")
    assert tables.update_readme(path, "| new |\n", check=True)


@pytest.mark.parametrize(
    "text", ["none", tables.BEGIN, f"{tables.END}\n{tables.BEGIN}", README + README]
)
def test_a_readme_without_its_marks(tmp_path, text):
    path = tmp_path / "README.md"
    path.write_text(text)
    with pytest.raises(UserError, match="results:begin"):
        tables.update_readme(path, "x\n", check=False)
    assert path.read_text() == text


def test_a_readme_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        tables.update_readme(tmp_path / "none.md", "x\n", check=False)
