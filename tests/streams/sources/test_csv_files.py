"""Tables in CSV files: every cell is read as what it is, or named in a message."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.streams import load_stream
from nccl_tf.streams.sources.csv_files import domains_of, inputs_of, read_table, targets_of
from nccl_tf.streams.sources.named import ReadArguments, read_named


def table(tmp_path, content):
    path = tmp_path / "x.csv"
    path.write_text(content)
    return read_table(path)


def column(tmp_path, cells, name="a"):
    return table(tmp_path, "".join(f"{cell},0\n" for cell in (f"{name}", *cells)))


@pytest.mark.parametrize("missing", ["", "NA", "nan", "NULL", " "])
def test_a_missing_number_is_named_by_its_row_and_column(tmp_path, missing):
    read = column(tmp_path, ["1", "2.5", missing, "4", missing])
    with pytest.raises(UserError, match=r"row 4 of the column 'a' .*missing"):
        inputs_of(read, ["a", "0"])
    with pytest.raises(UserError, match=r"row 4 of the column 'a' .*missing"):
        inputs_of(read, ["a"])  # and is no text
    for read_column in (targets_of, domains_of):
        with pytest.raises(UserError, match=r"row 4 of the column 'a' .*missing"):
            read_column(read, "a")


def test_a_row_without_a_label_is_no_class(tmp_path):
    read = column(tmp_path, ["cat", "dog", "", "dog"])
    for read_column in (targets_of, domains_of, lambda read, name: inputs_of(read, [name])):
        with pytest.raises(UserError, match=r"row 4 of the column 'a' .*is missing"):
            read_column(read, "a")
    assert targets_of(column(tmp_path, ["NA", "EU", "1", "2"]), "a").tolist() == [
        "NA",
        "EU",
        "1",
        "2",
    ]


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1", "1.5", "x"], "row 4 .*'x', expected a finite number, as in most rows"),
        (["1", "2", "1e999"], "row 4 .*'1e999', expected a finite number"),
        (["1", "2", "1_000"], "row 4 .*'1_000', expected a finite number"),
        (['"1,5"', '"2,5"', "3"], "row 2 .*'1,5', expected a point before decimals"),
        (['"1,000"', "2", "3"], "row 2 .*'1,000', expected a point before decimals"),
        (["north", "south", "north"], "row 2 .*'north', text beside other columns"),
    ],
)
def test_what_is_no_number_is_named(tmp_path, cells, said):
    with pytest.raises(UserError, match=said):
        inputs_of(column(tmp_path, cells), ["a", "0"])


def test_whole_numbers_of_any_size_are_inputs_and_no_class_numbers(tmp_path):
    cells = [str(10**20), str(-(2**63)), "3"]
    read = column(tmp_path, cells)
    expected = np.array([[1e20, 0], [-(2.0**63), 0], [3, 0]], np.float32)
    np.testing.assert_array_equal(inputs_of(read, ["a", "0"]), expected)
    assert domains_of(read, "a").tolist() == cells  # as names, because floats would join some
    for label in (10**20, 10**9, -1):
        with pytest.raises(
            UserError, match=rf"row 3 of the column 'a' .*'{label}', expected class"
        ):
            targets_of(column(tmp_path, ["0", str(label), "1"]), "a")
    assert targets_of(column(tmp_path, ["3", "0"]), "a").dtype == np.int64


@pytest.mark.parametrize("digits", [400, 5_000])  # Python reads no int of 5,000
def test_numbers_beyond_float32_are_no_text(tmp_path, digits):
    cells = ["1" + "0" * digits, "2" + "0" * digits]
    for cells_of in (cells, [*cells, "3"]):
        read = column(tmp_path, cells_of)
        with pytest.raises(UserError, match=r"row 2 of the column 'a' .*in the range of float32"):
            inputs_of(read, ["a"])
        with pytest.raises(UserError, match=r"row 2 of the column 'a' .*expected"):
            targets_of(read, "a")


def test_a_long_text_takes_no_more_memory_than_it_is_long(tmp_path):
    rows = ["x" * 200_000, *("y" * 5_000)]
    path = tmp_path / "x.csv"
    path.write_text("text,label\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(rows)))
    images = read_named(f"csv:{path}", ReadArguments())
    assert images.train.inputs.tolist() == rows
    assert images.train.inputs.nbytes < 100_000
    stream = load_stream(f"csv:{path}", num_tasks=2)
    assert stream.example_dtype == "string"
    features, _, _ = next(stream[0].train_batches(4).as_numpy_iterator())
    assert set(features["inputs"]) <= {b"y", rows[0].encode()}


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(tmp_path, separator):
    lines = [("a", "b", "label"), ("1", "2.5", "x"), ("3", "4", "y,z")]
    read = table(tmp_path, "\n".join(map(separator.join, lines)))
    assert inputs_of(read, ["a", "b"]).tolist() == [[1, 2.5], [3, 4]]
    assert targets_of(read, "label").tolist() == ["x", "y,z"]


def test_rows_are_counted_as_in_the_file(tmp_path):
    with pytest.raises(UserError, match=r"row 5 of .* has 1 values, expected 2"):
        table(tmp_path, "a,label\n\n1,0\n\n2\n")


def test_a_column_without_a_name_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"a column without a name.*index=False"):
        table(tmp_path, ",a,label\n0,1,0\n1,2,1\n")


def test_codes_are_names_where_text_and_number_differ(tmp_path, caplog):
    """Sites 007, 7, 010 and 10 were two domains, labels 0, 00, 1 and 01 two classes."""
    sites, labels = ("007", "7", "010", "10"), ("0", "00", "1", "01")
    rows = [f"{i},{sites[i % 4]},{labels[i // 4 % 4]}" for i in range(64)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,site,label", *rows]))
    stream = load_stream(f"csv:{path}", domain="site")
    assert len(stream) == 4 and stream.class_names == ("0", "00", "01", "1")
    assert [int(task.train.inputs[0, 0]) % 4 for task in stream] == [0, 2, 3, 1]
    told = [record.getMessage().split(" of csv:")[0] for record in caplog.records]
    assert told == ["the column 'label'", "the column 'site'"]


def test_numbers_that_are_written_alike_stay_numbers(tmp_path):
    """Months 01 to 12 are cut into seasons, and spaces are no part of a cell."""
    rows = [f"{i},{1 + i % 12:02},{' ' * (i % 2)}{i // 12 % 2}" for i in range(96)]
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,month,label", *rows]))
    stream = load_stream(f"csv:{path}", domain="month", num_tasks=4)
    assert len(stream) == 4 and stream.class_names is None
    assert {int(task.train.inputs[0, 0]) % 12 // 3 for task in stream} == {0, 1, 2, 3}


def test_dates_are_domains(tmp_path):
    dates = ["2026-01-31", "2026-01-05 10:30", "2026-02-01T00:00:00"]
    found = domains_of(column(tmp_path, dates), "a")
    assert found.dtype == "datetime64[us]" and found.argsort().tolist() == [1, 0, 2]


def test_domains_of_few_rows_hold_out_one_each(tmp_path):
    """Ten sites of two rows, of one class or of two; six of four rows."""
    for sites, rows in ((10, 2), (6, 4)):
        lines = [f"{i},{(i // sites) % 2},site{i % sites}" for i in range(sites * rows)]
        (tmp_path / "x.csv").write_text("\n".join(["a,label,site", *lines]))
        stream = load_stream(f"csv:{tmp_path / 'x.csv'}", domain="site")
        assert len(stream) == sites
        assert {(task.num_train, len(task.test.labels)) for task in stream} == {
            (rows - rows // 2, rows // 2)
        }


def test_a_table_in_order_of_time_holds_out_the_end_of_each_window(tmp_path):
    days = np.datetime64("2026-01-01") + np.random.default_rng(0).permutation(60)
    lines = [f"{(day - days.min()).astype(int)},{i % 2},{day}" for i, day in enumerate(days)]
    (tmp_path / "x.csv").write_text("\n".join(["a,label,day", *lines]))
    stream = load_stream(f"csv:{tmp_path / 'x.csv'}", domain="day", num_tasks=3)
    for number, task in enumerate(stream):
        assert sorted(task.train.inputs[:, 0]) == list(range(20 * number, 20 * number + 16))
        assert sorted(task.test.inputs[:, 0]) == list(range(20 * number + 16, 20 * number + 20))


def test_true_and_false_are_numbers_as_in_a_frame(tmp_path):
    """Columns of pandas's `get_dummies`; R writes TRUE, and others true."""
    read = table(tmp_path, "a,b,c\nTrue,1.5,FALSE\nFalse,2,TRUE\nTrue,0, true\n")
    expected = [[1, 1.5, 0], [0, 2, 1], [1, 0, 1]]
    assert inputs_of(read, ["a", "b", "c"]).tolist() == expected
    assert inputs_of(read, ["a"]).tolist() == [[1], [0], [1]]


def test_a_missing_boolean_is_named_by_its_row_and_column(tmp_path):
    read = column(tmp_path, ["True", "NA", "False", "False"])
    with pytest.raises(UserError, match=r"row 3 of the column 'a' .*'NA', which is missing"):
        inputs_of(read, ["a", "0"])


def test_true_is_one_name_however_it_is_written(tmp_path):
    for read_column in (targets_of, domains_of):
        found = read_column(column(tmp_path, ["True", "FALSE", "TRUE", "true "]), "a")
        assert found.tolist() == ["True", "False", "True", "True"]
        of_texts = column(tmp_path, ["true", "false", "perhaps"])
        assert read_column(of_texts, "a").tolist() == ["true", "false", "perhaps"]
