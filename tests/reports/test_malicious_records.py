"""Records that a stranger made: one is left out and named, briefly, and the others are shown."""

import contextlib
import csv
import io
import itertools
import json

import pytest

from nccl_tf.commands.paper.parity_tables import tables_with_runs
from nccl_tf.records.settings import settings_digest
from nccl_tf.reports.page.render import report_page
from nccl_tf.reports.records import RecordedRun, Records
from nccl_tf.reports.run_table import as_csv, run_columns
from nccl_tf.reports.table import Table, as_latex, as_markdown
from nccl_tf.reports.tables import results_by_stream
from tests.experiment import sample

NAMES = (
    "<script>alert(1)</script>", "a<!-- results:end -->", "a|b", "a\nb", "=cmd|' /C calc'!A0",
    "@sum(1)", "-cmd", "$\\frac{1}{", "\udcff", "\x1b[2J", "n" * 200_000, "",
)  # fmt: skip
VALUES = ("x" * 200_000, "fast", 10**400, None, [], {}, [[]], [None], True, -1, 1e308)
PLACES = (
    "dataset", "head", "commit", "device", "versions.keras", "undefined.forgetting",
    "package_modified", "commit_in_history", "costs_from_settings",
    "settings.network", "settings.memory", "settings.precision",
    "settings.hyperparameters.beta_max", "settings.hyperparameters.new",
    "options.diagnostics", "options.new", "new",
)  # fmt: skip
OF_VALUES = (
    "settings.learning_rate", "settings.hyperparameters", "accuracy_matrix", "initial_accuracy",
    "learning_rates", "options", "options.threads", "versions", "undefined", "steps", "task_steps",
    "peak_memory_bytes", "train_seconds", "schema_version", "method",
)  # fmt: skip


def changed(place: str, value) -> dict:
    """A record with a value at a place, and the hash that its settings then have."""
    record = sample.entries()
    *folders, last = place.split(".")
    target = record
    for name in folders:
        target = target[name]
    target[last] = value
    if place in ("dataset", "head"):
        record["settings"][place] = value
    with contextlib.suppress(TypeError, ValueError, AttributeError):
        record["settings_hash"] = settings_digest(record["settings"])
    return record


def write(path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def show_all(records) -> tuple[str, str, str]:
    """Everything that the reports make of records: tables, page and data."""
    tables = [*results_by_stream(records), *tables_with_runs(records)]
    page, _ = report_page(
        [RecordedRun(record, None) for record in records], tables_with_runs(records)
    )
    data = as_csv(run_columns(records))
    return "\n".join([as_latex(tables), *map(as_markdown, tables)]), page, data


def test_odd_values(tmp_path):
    """A value at each place, each in a record of its own, beside a good one."""
    good = sample.record(seed=999)
    write(tmp_path / "good" / "result.json", json.dumps(good.as_json()))
    cases = [*itertools.product(PLACES, NAMES), *itertools.product(OF_VALUES, VALUES)]
    for number, (place, value) in enumerate(cases):
        text = json.dumps({**changed(place, value), "seed": number})
        write(tmp_path / str(number) / "result.json", text)
    found = Records.below(tmp_path)
    records, broken = found.records, found.broken
    assert good in records and len(records) + len(broken) == 1 + len(cases)
    assert max(map(len, broken)) < 600
    tables, page, data = show_all(records)
    assert not [name for name in NAMES if name and name in tables]
    # The device alone may be any text of a line; it is data there.
    assert not [name for name in NAMES if "<" in name and name in page]
    cells = [cell for row in csv.reader(io.StringIO(data)) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "-cmd"))]
    assert "'=cmd|' /C calc'!A0" in cells
    assert len(tables) < 1_000_000 and len(page) < 7_000_000 and len(data) < 100_000


def test_brackets_without_end(tmp_path):
    good = sample.record(seed=9)
    write(tmp_path / "good" / "result.json", json.dumps(good.as_json()))
    deep = "[" * 100_000 + "]" * 100_000
    for number, text in enumerate((deep, deep[:100_000], "{" * 90, '{"a":' * 100_000)):
        write(tmp_path / str(number) / "result.json", text)
    for number, place in enumerate(
        ("device", "diagnostics", "settings.hyperparameters.new", "new")
    ):
        for depth in (100_000,):
            text = json.dumps(changed(place, "DEEP"))
            deep = "[" * depth + "]" * depth
            name = f"{number}-{depth}"
            write(tmp_path / name / "result.json", text.replace('"DEEP"', deep))
            write(tmp_path / name / "er_ring.jsonl", text.replace('"DEEP"', deep) + "\n{}\n")
    found = Records.below(tmp_path)
    records, broken = found.records, found.broken
    assert records == [good]
    assert max(map(len, broken)) < 600


def test_folders_in_folders_without_end(tmp_path):
    """rglob would end in a RecursionError."""
    path = tmp_path
    write(tmp_path / "good" / "result.json", json.dumps(sample.entries()))
    while len(str(path)) < 3900:
        path /= "d"
        path.mkdir()
    (tmp_path / "around").symlink_to(tmp_path)
    (tmp_path / "result.json").mkdir()
    assert len(Records.below(tmp_path).runs) == 1
    while path != tmp_path:  # pytest's own removal of such a folder ends in a RecursionError
        path.rmdir()
        path = path.parent


def test_a_file_of_too_many_lines(tmp_path):
    (tmp_path / "er_ring.jsonl").write_text("\n" * 200_000)
    (sentence,) = Records.below(tmp_path).broken
    assert "more than 100,000 lines" in sentence


ODD_MEASUREMENTS = (
    [], {}, "x", {"tasks": []}, {"tasks": [{}] * 3}, {"tasks": [[]] * 3}, {"tasks": None},
    {"tasks": [{"task": 10**300}] * 3}, {"tasks": "abc", "subset": None},
)  # fmt: skip


@pytest.mark.parametrize("odd", ODD_MEASUREMENTS, ids=str)
def test_odd_diagnostics(tmp_path, command, odd):
    write(tmp_path / "a" / "result.json", json.dumps({**sample.entries(), "diagnostics": odd}))
    code, _, errors = command(
        "figures", "--figure=bound", f"--output_dir={tmp_path}", f"--figure_dir={tmp_path}"
    )
    assert code == 2 and "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("error: ")


def test_cells_of_tables_are_text():
    cells = ("<script>", "<!-- results:end -->", "a|b", "a\\|b", "a\nb\r\nc", "=1+1", "@a", "+a")
    table = Table("t", "t", ("name", "x"), tuple((cell, "-") for cell in cells))
    lines = as_markdown(table).splitlines()
    assert len(lines) == 2 + len(cells)
    assert "<" not in as_markdown(table) and "&lt;!-- results" in as_markdown(table)
    assert lines[4:6] == ["| a\\|b | - |", "| a\\\\\\|b | - |"]
    assert lines[6] == "| a b c | - |"


def test_no_text_in_a_csv_is_a_formula():
    texts = ["=1+1", "@a", "+a", "-1+cmd|' /C calc'!A0", "\t=1", "-1-1"]
    cells = as_csv({"x": texts}).splitlines()[1:]
    assert all(cell.startswith(("'", "\"'")) for cell in cells)
    numbers = [-1, -0.5, 1e-30, None, True]
    assert as_csv({"=x": numbers, "y": [1] * 5}).split("\n") == [
        "'=x,y", "-1,1", "-0.5,1", "1e-30,1", ",1", "true,1", "",
    ]  # fmt: skip
