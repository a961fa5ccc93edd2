"""The page: its figure, its bytes and its text."""

import itertools
import re
import sys

import numpy as np
import plotly.graph_objects
import pytest

from nccl_tf.errors import UserError
from nccl_tf.methods.registry import METHODS
from nccl_tf.reports.page.figure import runs_figure
from nccl_tf.reports.page.groups import streams_of
from nccl_tf.reports.page.render import report_page
from nccl_tf.reports.records import RecordedRun
from tests.experiment import sample
from tests.reports.page.samples import write_steps


@pytest.fixture(scope="module")
def figure(records, tmp_path_factory):
    """The figure of the runs, those of NCCL with steps."""
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for number, record in enumerate(records):
        if record["method"] == "nccl_ring":
            write_steps(folder / str(number), np.arange(50.0))
        runs.append(RecordedRun(record, folder / str(number)))
    return runs_figure(streams_of(runs)[0])


def traces(figure, axis):
    return [trace for trace in figure["data"] if trace["yaxis"] == axis and trace["visible"]]


def test_plotly_knows_every_name_in_the_figure(figure):
    plotly.graph_objects.Figure(figure)


def test_the_largest_stream_is_drawn_and_the_others_are_chosen(figure):
    menu = figure["layout"]["updatemenus"][0]
    assert len(menu["buttons"]) == 3 and menu["active"] == 1
    lines = [trace for trace in traces(figure, "y") if trace.get("name") and "customdata" in trace]
    assert lines[0]["name"] == "Multi-task"
    assert {"NCCL + Ring", "ER-Ring"} <= {line["name"].partition(",")[0] for line in lines}
    for button in menu["buttons"]:
        visible, layout = button["args"]
        chosen = [
            trace for trace, shown in zip(figure["data"], visible["visible"], strict=True) if shown
        ]
        assert sum(trace["type"] == "heatmap" for trace in chosen) == 1
        (slider,) = layout["sliders"]
        assert len(slider["steps"]) == chosen[0]["z"].shape[1]
    # The panels lie one below the other, and none overlaps another.
    domains = [figure["layout"][f"yaxis{axis}"]["domain"] for axis in ("", "2", "3", "4", "5")]
    assert all(0 <= low < high <= 1 for low, high in domains)
    assert all(above[0] > below[1] for above, below in itertools.pairwise(domains))


def test_the_first_lines_have_one_memory_size_which_the_axis_names():
    """Though a larger memory, or more passes, are more accurate."""

    def run(method, size, accuracy, **more):
        values = [[accuracy, np.nan], [accuracy, accuracy]]
        made = sample.record(values, method=method, memory_size=size, **more)
        return RecordedRun(made, None)

    runs = [
        run("er_reservoir", 200, 0.5), run("derpp", 200, 0.6), run("er_reservoir", 1000, 0.7),
        run("finetune", None, 0.3), run("finetune", None, 0.8, epochs=5),
        run("multi_task", None, 0.9), run("iid_offline", None, 0.95, epochs=5),
    ]  # fmt: skip
    figure = runs_figure(streams_of(runs)[0])
    lines = [t for t in traces(figure, "y") if "customdata" in t and t["visible"] is True]
    names = {line["name"] for line in lines}
    assert names == {"ER-Reservoir, memory 200", "DER++, memory 200", "Fine-tune, epochs 1",
                     "Multi-task"}  # fmt: skip
    assert "a memory of 200, batches of 10, one pass" in figure["layout"]["xaxis"]["title"]["text"]
    (points,) = traces(figure, "y2")
    pale = {
        text for text, at in zip(points["text"], points["marker"]["opacity"], strict=True) if at < 1
    }
    assert pale == {"ER-Reservoir, memory 1000", "Fine-tune, epochs 5"}


def test_no_two_methods_look_alike():
    able = [row for row in METHODS.values() if not row.unsupported_reason("permuted", "single")]
    names = [row.name for row in able if not row.joint][:20]
    values = [[0.5, np.nan], [0.5, 0.5]]
    runs = [RecordedRun(sample.record(values, method=name), None) for name in names]
    points = traces(runs_figure(streams_of(runs)[0]), "y2")[0]["marker"]
    looks = set(zip(points["color"], points["symbol"], strict=True))
    assert len(looks) == len(points["color"]) > 15
    # In small, a hexagon is a circle.
    assert not {"circle", "hexagon"} <= set(points["symbol"])


def test_names_of_rows_differ_where_labels_are_long():
    long = {"smoothness": 0.1, "delta": 0.01, "average_weights": 0.99}
    values = [[0.5, np.nan], [0.5, 0.5]]
    made = [
        sample.record(values, method="nccl_ring", learning_rate=rate, **given)
        for rate in (0.1, 0.01)
        for given in ({}, long, {"beta_max": 0.5}, {"schedule": "inverse_sqrt"})
    ]
    layout = runs_figure(streams_of([RecordedRun(one, None) for one in made])[0])["layout"]
    names = layout["yaxis3"]["ticktext"]
    assert len(set(names)) == len(made) and max(map(len, names)) <= 40


def test_step_sizes_have_panels_where_they_were_measured(figure):
    lines = [trace for trace in traces(figure, "y3") if "customdata" in trace]
    assert [line["name"] for line in lines] == ["NCCL + Ring"]
    assert traces(figure, "y4") and traces(figure, "y5")[0]["type"] == "heatmap"
    assert "yaxis6" not in figure["layout"]


def test_it_holds_everything_and_needs_nothing_else(runs):
    page = report_page(runs)[0]
    own = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert not re.search(r"\s(src|srcset|action)=|@import|<link", own)
    for words in ("9 runs", "T9: permuted MNIST", "permuted_digits (single-head), 3 tasks"):
        assert words in own, words


def test_the_same_runs_give_the_same_bytes(runs):
    assert report_page(runs[::-1])[0] == report_page(runs)[0]


def test_runs_of_one_task_and_of_one_stream(runs):
    trial = [RecordedRun(sample.record([[0.5]], max_tasks=1), None)]
    figure = runs_figure(streams_of(trial)[0])
    assert not figure["layout"]["updatemenus"][0]["visible"]
    assert traces(figure, "y") and not traces(figure, "y2")
    assert "1 run<" in report_page(trial)[0]


@pytest.mark.parametrize("name", ["plotly", "itables"])
def test_without_its_libraries_the_error_names_the_extra(runs, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=re.escape("nccl_tf[report]")):
        report_page(runs)
