"""The table and the plot of a result."""

import io
import sys

import numpy as np
import pandas
import pytest
from matplotlib import pyplot
from matplotlib.text import Text

from nccl_tf import LearnResult, plot_results
from nccl_tf.errors import UserError
from nccl_tf.session.confusions import Confusions

MATRIX = np.array([[0.9, 0.2], [0.7, 0.8]])
ROWS = [
    {"tasks_trained": 0, "task": 0, "accuracy": 0.1},
    {"tasks_trained": 0, "task": 1, "accuracy": 0.3},
    {"tasks_trained": 1, "task": 0, "accuracy": 0.9},
    {"tasks_trained": 1, "task": 1, "accuracy": 0.2},
    {"tasks_trained": 2, "task": 0, "accuracy": 0.7},
    {"tasks_trained": 2, "task": 1, "accuracy": 0.8},
]


@pytest.fixture
def result():
    return LearnResult(MATRIX, np.array([0.1, 0.3]), title="ER on mine")


def test_numbers_and_rows(result):
    assert result.rows() == ROWS
    assert (result.average_accuracy, round(result.forgetting, 9)) == (0.75, 0.2)
    assert str(result).startswith("ER on mine: average accuracy 0.750, forgetting 0.200")
    assert repr([result]) == f"[{result}]"  # as a cell of a notebook shows it


def test_where_less_is_better_every_number_has_the_sign_of_a_gain():
    matrix = np.array([[5.0, 8.0], [6.0, 4.0]])
    result = LearnResult(matrix, np.array([10.0, 9.5]), "perplexity", higher_is_better=False)
    found = result.average_accuracy, result.forgetting, result.backward_transfer
    assert found == (5, 1, -1)  # 5 of the first task rose to 6
    assert result.forward_transfer == 1.5  # the second had 9.5 untrained, and 8 after the first


def test_with_an_average_both_are_told(result):
    averaged = LearnResult(MATRIX / 2, np.array([0.1, 0.3]), title="averaged")
    both = LearnResult(MATRIX, np.array([0.1, 0.3]), title="ER", averaged=averaged)
    plain, line = str(both).splitlines()
    assert plain.startswith("ER: average accuracy 0.750")
    assert line.startswith("averaged: average accuracy 0.375, forgetting 0.100")
    assert result.averaged is None and "\n" not in str(result)


def test_a_data_frame_has_a_row_for_each_evaluation(result):
    frame = result.to_pandas()
    assert frame.to_dict("records") == ROWS
    assert frame.dtypes["task"] == np.int64
    assert isinstance(frame, pandas.DataFrame)


def test_without_pandas_the_error_names_it(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match="pip install pandas"):
        result.to_pandas()


def test_a_plot_makes_its_axes_or_takes_them(result):
    made = result.plot()
    assert made[0].images[0].get_array()[1, 0] == 70
    np.testing.assert_allclose(made[1].lines[-1].get_ydata(), [90, 75])
    pyplot.close(made[0].figure)
    figure, axes = pyplot.subplots(2)
    assert result.plot(axes)[1] is axes[1] and axes[0].get_title(loc="left") == "ER on mine"
    pyplot.close(figure)
    with pytest.raises(UserError, match="received 1 axes: expected two"):
        result.plot(axes[:1])


@pytest.mark.parametrize("name", ["$x$ and $y$", r"$\frac$", "$"])
def test_names_with_dollars_are_drawn_as_they_are_written(name):
    cells = {0: ([0, 1], [0, 0], [1, 2]), 1: ([0, 1], [0, 1], [1, 2])}
    confusions = Confusions([[0], [1]], cells, [name, f"{name}b"])
    result = LearnResult(MATRIX, np.array([0.1, 0.3]), name, title=name, confusions=confusions)
    drawn = [*result.plot(), result.plot_confusion(), *plot_results({name: result}).axes]
    own = pyplot.subplots(1, 3)[1]
    drawn += [*result.plot(own[:2]), result.plot_confusion(axes=own[2])]
    for figure in {axes.figure for axes in drawn}:
        texts = [text for text in figure.findobj(Text) if name in text.get_text()]
        assert texts and not any(text.get_parse_math() for text in texts)
        figure.savefig(io.BytesIO())
    pyplot.close("all")


def test_another_metric_is_drawn_in_its_unit():
    result = LearnResult(MATRIX, MATRIX[0], "mean_absolute_error", higher_is_better=False)
    axes = result.plot()
    labels = [axes[1].get_ylabel(), axes[0].figure.axes[2].get_ylabel()]  # and of the colours
    labels += [each.get_ylabel() for each in plot_results({"ER": result}).axes]
    assert labels == ["mean_absolute_error (less is better)"] * 4
    assert {text.get_text() for text in axes[0].texts} == {"0.9", "0.2", "0.7", "0.8"}
    pyplot.close(axes[0].figure)
    assert result.forgetting == pytest.approx(-0.2)


def test_several_results_are_drawn_together(result):
    joint = np.array([[np.nan, np.nan], [0.9, 0.95]])
    results = {"ER": result, "joint": LearnResult(joint, np.zeros(2))}
    figure = plot_results(results)
    over_time, at_end = figure.axes
    np.testing.assert_allclose(over_time.lines[0].get_ydata(), [90, 75])
    np.testing.assert_allclose(over_time.lines[1].get_xydata(), [[2, 92.5]])
    heights = [bar.get_height() for bar in at_end.patches]
    np.testing.assert_allclose(heights, [70, 80, 90, 95])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(results)


def test_seeds_of_a_name_are_drawn_as_their_mean_and_a_band(result):
    other = LearnResult(MATRIX - 0.1, MATRIX[0])
    over_time, at_end = plot_results({"ER": [result, other], "one": result}).axes
    np.testing.assert_allclose(over_time.lines[0].get_ydata(), [85, 70])
    (band,) = over_time.collections
    edges = band.get_paths()[0].vertices
    assert edges[:, 1].min() == pytest.approx(65) and edges[:, 1].max() == pytest.approx(90)
    np.testing.assert_allclose([bar.get_height() for bar in at_end.patches[:2]], [65, 75])
    three = LearnResult(np.full((3, 3), 0.5), np.zeros(3))
    with pytest.raises(UserError, match="results of 2 and 3 tasks for 'ER'"):
        plot_results({"ER": [result, three]})
    with pytest.raises(UserError, match="received a list for 'ER'"):
        plot_results({"ER": []})
    with pytest.raises(UserError, match="received a float for 'ER'"):
        plot_results({"ER": [result, 0.9]})


@pytest.mark.parametrize(
    ("ends", "bottom"),
    [
        ([0.98, 0.99], 97),  # as far below as they differ
        ([0.98, 0.98], 97.02),  # a hundredth, where they do not
        ([0.5, 0.9], 0),
        ([0.0, 0.01], 0),
    ],
)
def test_bars_of_values_that_lie_close_begin_below_them(ends, bottom):
    results = {
        name: LearnResult(np.full((1, 1), value), np.zeros(1))
        for name, value in zip(("a", "b"), ends, strict=True)
    }
    _, at_end = plot_results(results).axes
    assert at_end.get_ylim()[0] == pytest.approx(bottom)


def test_what_is_no_result_is_not_drawn(result):
    for received in ({}, [result], None):
        with pytest.raises(UserError, match="expected a dictionary of results"):
            plot_results(received)
    with pytest.raises(UserError, match="received a float for 'ER'"):
        plot_results({"ER": 0.9})
    loss = LearnResult(MATRIX, MATRIX[0], "loss", higher_is_better=False)
    with pytest.raises(UserError, match="expected one metric"):
        plot_results({"ER": result, "loss": loss})
