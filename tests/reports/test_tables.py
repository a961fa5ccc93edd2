"""The table of results, in Markdown and on a terminal."""

import pytest

from nccl_tf.reports import tables
from nccl_tf.reports.page.groups import streams_of
from nccl_tf.reports.records import RecordedRun
from nccl_tf.reports.table import as_markdown
from tests.experiment import sample


def test_a_row_for_each_settings_and_the_best_first():
    runs = [
        sample.record([[0.8, 0.1], [0.6, 0.8]], seed=0, method="nccl_ring"),
        sample.record([[0.8, 0.1], [0.6, 0.6]], seed=1, method="nccl_ring"),
        sample.record([[0.9]], method="finetune"),
        sample.record([[0.4, 0.1], [0.2, 0.4]], method="nccl_ring", learning_rate=0.01),
        sample.record([[0.8, 0.1], [0.4, 0.4]], method="finetune"),
    ]
    rows = [line.split(" | ") for line in as_markdown(tables.results_table(runs)).splitlines()[2:]]
    assert [[cell.strip("| ") for cell in row][2:10] for row in rows] == [
        ["10 / 0 / 1", "all", "Fine-tune", "0.1", "-", "1", "90.0", "-"],
        ["10 / 0 / 2", "all", "NCCL + Ring", "0.1", "500", "2", "65.0 ± 5.0", "0.200 ± 0.000"],
        ["10 / 0 / 2", "all", "Fine-tune", "0.1", "-", "1", "40.0", "0.400"],
        ["10 / 0 / 2", "all", "NCCL + Ring", "0.01", "500", "1", "30.0", "0.200"],
    ]


def test_each_stream_has_a_table():
    runs = [
        sample.record([[0.9]], method="finetune"),
        sample.record([[0.9]], method="finetune", examples_per_task=20),
        sample.record([[0.8, 0.1], [0.6, 0.8]], method="agem", examples_per_task=20),
    ]
    found = {table.title: len(table.rows) for table in tables.results_by_stream(runs)}
    assert found == {
        f"permuted_digits (single-head), {tasks} (in all 10, for tuning 0), "
        "batches of 10, one pass": 1
        for tasks in ("1 tasks of all examples", "1 tasks of 20 examples", "2 tasks of 20 examples")
    }


@pytest.mark.parametrize(
    ("cut", "words"),
    [
        ({"image_size": 32}, "32 pixels"),
        ({"label": "sick", "domain": "site"}, "label sick, domain site"),
        ({"domain": "date", "by": "month", "kind": "domain"}, "domain date, by month"),
        ({"positive": "fraud"}, "positive fraud"),
        ({"kind": "permuted"}, "permuted"),
        ({"content": "0123456789abcdef"}, "content 01234567"),
    ],
    ids=str,
)
def test_streams_of_one_data_set_that_are_cut_otherwise_have_tables_of_their_own(cut, words):
    """Rows of two methods read as a comparison of them."""
    plain, other = (sample.record(method=method) for method in ("finetune", "er_ring"))
    other = sample.changed(other, settings={**other.settings_json, **cut})
    titles = [table.title for table in tables.results_by_stream([plain, other])]
    assert len(titles) == 2 and any(f"permuted_digits, {words} (single-head)" in t for t in titles)
    assert {row[4] for row in tables.results_table([plain, other]).rows} == {"Fine-tune", "ER-Ring"}
    assert len(streams_of([RecordedRun(one, None) for one in (plain, other)])[0]) == 2


def test_the_best_and_what_ties_with_it_is_bold():
    """Means 60, 59, 40; the best has a standard error of 10 points."""
    runs = [
        sample.record([[0.9, 0.1], [a, a]], seed=seed, method=method)
        for method, values in {
            "er_ring": (0.5, 0.7), "agem": (0.59, 0.59), "finetune": (0.4, 0.4),
            "multi_task": (0.8, 0.8), "cumulative": (0.85, 0.85),
        }.items()
        for seed, a in enumerate(values)
    ]  # fmt: skip
    (table,) = tables.results_by_stream(runs)
    assert [row[0] for row in table.rows][2:] == ["ER-Ring", "A-GEM", "Fine-tune"]
    bold = {(i, table.names[j]) for i, j in table.bold}
    assert bold == {(i, name) for i in (2, 3) for name in ("accuracy %", "forgetting")}


def test_rows_that_would_begin_alike_say_what_sets_them_apart():
    runs = [
        sample.record(method="nccl_ring", **given)
        for given in ({}, {"beta_max": 0.05}, {"smoothness": 2.0, "delta": 0.1}, {"hidden": [8]})
    ]
    runs.append(sample.record(method="nccl_ring", learning_rate=0.01, hidden=[8]))
    older = {name: v for name, v in runs[0].settings_json.items() if name != "schedule"}
    runs[0] = sample.changed(runs[0], settings=older)
    names = {row[4] for row in tables.results_table(runs).rows}
    assert names == {
        "NCCL + Ring", "NCCL + Ring, beta_max 0.05", "NCCL + Ring, smoothness 2.0, delta 0.1",
        "NCCL + Ring, hidden 8",
    }  # fmt: skip


def test_a_row_says_what_differs_from_the_defaults_also_when_it_stands_alone():
    dark = sample.record(method="er_reservoir", dark=1.0, stream_mask="seen")
    (table,) = tables.results_by_stream([dark])
    assert table.rows[0][0] == "ER-Reservoir, dark 1.0, stream_mask seen"
    assert table.title.endswith(", batches of 10, one pass")
    assert "ER-Reservoir, dark 1.0, stream_mask seen" in tables.results_text([dark])


def test_batch_and_passes_have_columns_where_they_differ():
    runs = [
        sample.record(method="er_reservoir", epochs=2, batch_size=5),
        sample.record(method="finetune"),
    ]
    (table,) = tables.results_by_stream(runs)
    assert "passes" not in table.title
    columns = [table.names.index(name) for name in ("batch", "passes")]
    cells = {row[0]: [row[i] for i in columns] for row in table.rows}
    assert cells == {"ER-Reservoir": ["5", "2"], "Fine-tune": ["10", "1"]}
    assert {"batch", "passes"} < {*table.numbers, *tables.for_a_paper(table).names}
    short = tables.results_text(runs)
    assert "ER-Reservoir, batch 5, passes 2" in short
    assert max(map(len, short.splitlines())) <= 80


def test_averaged_weights_have_columns_where_a_record_has_them():
    plain = [sample.record([[0.8, 0.1], [0.6, 0.8]], method="agem")]
    both = [*plain, sample.record([[0.8, 0.1], [0.6, 0.8]], average_weights=0.9)]
    table, narrow = tables.results_table(both), tables.results_table(plain)
    averaged = ("averaged accuracy %", "averaged forgetting")
    assert narrow.names == tuple(name for name in table.names if name not in averaged)
    assert len(narrow.rows[0]) == len(narrow.names)
    columns = table.names.index("averaged accuracy %"), table.names.index("averaged forgetting")
    assert [[row[i] for i in columns] for row in table.rows] == [["-", "-"], ["35.0", "0.100"]]
    assert all(row[-1].startswith("`") and len(row) == len(table.names) for row in table.rows)
    lines = tables.results_text(both).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1].split() == ["averaged", "weights", "35.0", "0.100"]
    assert "averaged" not in tables.results_text(plain)


def test_a_paper_gets_neither_rates_nor_hashes():
    made = [sample.record(seed=seed, method=name) for name in ("agem", "derpp") for seed in (0, 1)]
    (table,) = tables.results_by_stream(made)
    short = tables.for_a_paper(table)
    assert short.names == ("method", "memory", "seeds", "accuracy %", "forgetting")
    assert [row[0] for row in short.rows] == [row[0] for row in table.rows]
    cells = {table.rows[i][j] for i, j in table.bold}
    assert {short.rows[i][j] for i, j in short.bold} == cells and cells
