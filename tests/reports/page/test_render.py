"""The page: its figure, its bytes and its text."""

import json
import re
import sys

import numpy as np
import plotly.graph_objects
import pytest

from nccl_tf.commands.paper.parity_tables import tables_with_runs
from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.costs import COSTS
from nccl_tf.reports.page.figure import charts, method_numbers
from nccl_tf.reports.page.groups import streams_of, views_of
from nccl_tf.reports.page.render import report_page
from nccl_tf.reports.records import RecordedRun
from tests.experiment import sample
from tests.reports.page.samples import write_steps


@pytest.fixture(scope="module")
def streams(records, tmp_path_factory):
    """The groups of the runs, those of NCCL with steps."""
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for number, record in enumerate(records):
        if record.method == "nccl_ring":
            write_steps(folder / str(number), np.arange(50.0))
        runs.append(RecordedRun(record, folder / str(number)))
    return streams_of(runs)[0]


@pytest.fixture(scope="module")
def largest(streams):
    """The charts of the largest stream."""
    groups = max(streams.values(), key=len)
    return charts(groups, method_numbers(streams))


def of_groups(records):
    """The charts of records of one stream."""
    (groups,) = (streams := streams_of([RecordedRun(one, None) for one in records])[0]).values()
    return charts(groups, method_numbers(streams))


def lines_of(chart):
    """Its lines, without their bands."""
    return [trace for trace in chart["data"] if trace.get("hoverinfo") != "skip"]


def test_plotly_knows_every_name_in_the_charts(streams):
    for groups in streams.values():
        for chart in charts(groups, method_numbers(streams)).values():
            plotly.graph_objects.Figure(chart)


def test_the_charts_of_a_view(largest):
    lines = lines_of(largest["curves"])
    assert lines[0]["name"] == "Multi-task"
    assert {"NCCL + Ring", "ER-Ring"} <= {line["name"].partition(",")[0] for line in lines}
    names = [trace["name"] for trace in largest["points"]["data"]]
    assert {name.partition(",")[0] for name in names} == {"NCCL + Ring", "ER-Ring"}
    assert len(set(names)) == len(names)
    (heatmap,) = largest["matrix"]["data"]
    (slider,) = largest["matrix"]["layout"]["sliders"]
    assert len(slider["steps"]) == heatmap["z"].shape[1] == 3
    np.testing.assert_allclose(slider["steps"][1]["args"][0]["z"][0][1], [80, 90, np.nan])


def test_lines_of_six_methods_and_of_those_that_keep_all_examples_are_drawn_at_first():
    able = [row for row in METHODS.values() if not row.unsupported_reason("permuted", "single")]
    names = [row.name for row in able if not (row.joint or row.joins)][:8]
    values, all_examples = [[0.5, np.nan], [0.5, 0.5]], ("multi_task", "cumulative")
    made = [sample.record(values, method=name) for name in (*names, *all_examples)]
    lines = lines_of(of_groups(made)["curves"])
    shown = [line["name"] for line in lines if line["visible"] is True]
    assert len(lines) == 10 and len(shown) == 8 and {"Multi-task", "Cumulative"} <= set(shown)


def test_no_two_methods_look_alike_and_each_looks_the_same_in_every_view():
    able = [row for row in METHODS.values() if not row.unsupported_reason("permuted", "single")]
    names = [row.name for row in able if not row.joint][:20]

    def of(accuracy, names):
        values = [[accuracy, np.nan], [accuracy, accuracy]]
        return [RecordedRun(sample.record(values, method=name), None) for name in names]

    few = [RecordedRun(sample.record(method=name), None) for name in names[5:2:-1]]
    streams = streams_of([*of(0.5, names), *few])[0]
    numbers = method_numbers(streams)
    looks = [
        {
            trace["name"]: (trace["marker"]["color"], trace["marker"]["symbol"])
            for trace in charts(groups, numbers)["points"]["data"]
        }
        for groups in streams.values()
    ]
    small, large = sorted(looks, key=len)
    assert len(set(large.values())) == len(large) > 15 and len(small) == 3
    assert small.items() <= large.items()
    # In small, a hexagon is a circle.
    assert not {"circle", "hexagon"} <= {symbol for _, symbol in large.values()}


@pytest.mark.parametrize("count", [2, 25])
def test_settings_of_a_method_differ_among_the_points_where_they_are_few(count):
    values = [[0.5, np.nan], [0.5, 0.5]]
    made = [
        sample.record(values, method="nccl_ring", smoothness=1 + number / 10)
        for number in range(count)
    ]
    points = of_groups(made)["points"]["data"]
    if count == 2:
        assert len({trace["name"] for trace in points}) == 2
        assert [trace["marker"]["symbol"] for trace in points] == ["circle", "circle-open"]
    else:
        (trace,) = points
        assert (trace["name"], len(trace["x"])) == ("NCCL + Ring", 25)


def test_long_names_are_whole_in_rows_of_their_height():
    long = {"smoothness": 0.1, "delta": 0.01, "average_weights": 0.99}
    values = [[0.5, np.nan], [0.5, 0.5]]
    made = [
        sample.record(values, method="nccl_ring", learning_rate=rate, **given)
        for rate in (0.1, 0.01)
        for given in ({}, long, {"beta_max": 0.5}, {"schedule": "inverse_sqrt"})
    ]
    chart = of_groups(made)["matrix"]
    names = chart["layout"]["yaxis"]["ticktext"]
    assert len(set(names)) == len(made)
    lines = [name.split("<br>") for name in names]
    assert max(len(line) for name in lines for line in name) <= 30
    assert any("smoothness 0.1" in " ".join(name) and "delta 0.01" in " ".join(name)
               for name in lines)  # fmt: skip
    heights = np.diff(chart["data"][0]["y"])
    assert all(height >= 12 * len(name) for height, name in zip(heights, lines, strict=True))


def test_step_sizes_have_panels_where_they_were_measured(largest, streams):
    lines = lines_of(largest["steps"])
    assert {line["name"] for line in lines} == {"NCCL + Ring"}
    # No window of these runs has a beta_H.
    axes = {name for name in largest["steps"]["layout"] if name.startswith("yaxis")}
    assert axes == {"yaxis2", "yaxis3"}
    domains = [largest["steps"]["layout"][axis]["domain"] for axis in sorted(axes)]
    assert domains[0][0] > domains[1][1] > domains[1][0] >= 0
    without = [g for g in max(streams.values(), key=len) if g.method != "NCCL + Ring"]
    assert "steps" not in charts(without, method_numbers(streams))


def menu_of(page):
    """The options of the page's menu: each number, and whether it is chosen."""
    return re.findall(r'<option value="(\d+)"( selected)?>', page)


def test_a_view_for_each_budget_of_each_stream(runs, streams):
    page = report_page(runs)[0]
    options = menu_of(page)
    views = json.loads(re.search(r'id="views">(.*?)</script>', page, re.S)[1])["views"]
    assert len(options) == len(views) == sum(len(views_of(each)) for each in streams.values())
    (chosen,) = (int(number) for number, selected in options if selected)
    assert views[chosen]["stream"] == max(streams, key=lambda title: len(streams[title]))
    assert all(f'id="{view["table"]}"' in page for view in views)


def test_it_holds_everything_and_needs_nothing_else(runs):
    page = report_page(runs, tables_with_runs([run.record for run in runs]))[0]
    own = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"\s(src|srcset|action)=|@import|<link", own)
    for words in ("9 runs", "T9: permuted MNIST", "permuted_digits (single-head), the first 3 of"):
        assert words in own, words


def test_the_same_runs_give_the_same_bytes(runs):
    assert report_page(runs[::-1])[0] == report_page(runs)[0]


def test_runs_of_one_task_and_of_one_stream():
    trial = sample.record([[0.5]], max_tasks=1)
    made = of_groups([trial])
    assert lines_of(made["curves"]) and "points" not in made
    page = report_page([RecordedRun(trial, None)])[0]
    assert len(menu_of(page)) == 1 and "1 run<" in page


@pytest.mark.parametrize("name", ["plotly", "itables"])
def test_without_its_libraries_the_error_names_the_extra(runs, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=re.escape("nccl_tf[report]")):
        report_page(runs)


def test_settings_show_what_they_cost():
    made = [
        sample.changed(sample.record(method=method, **given), train_seconds=seconds, **costs)
        for method, given, seconds, costs in (
            ("finetune", {}, 2.0, {}),
            ("agem", {}, 5.0, {"bytes_stored": 13579, "examples_passed": 24680}),
        )
    ]
    page = report_page([RecordedRun(record, None) for record in made])[0]
    cells = re.findall(r"<td[^>]*>([^<]*)", page)
    start = cells.index("13579")
    assert cells[start : start + 3] == ["13579", "24680", "2.5"]
    titles = re.findall(r"<th[^>]*>([^<]*)", page)
    assert titles[titles.index(COSTS[0]) :][:3] == list(COSTS)


def test_costs_of_several_seeds_are_the_largest():
    made = [
        sample.changed(sample.record(method="agem", seed=i), bytes_stored=13570 + i)
        for i in range(2)
    ]
    page = report_page([RecordedRun(one, None) for one in made])[0]
    assert "13571" in re.findall(r"<td[^>]*>([^<]*)", page)
