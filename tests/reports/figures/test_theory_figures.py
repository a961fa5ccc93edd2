"""The values that the pictures of the theory draw."""

import numpy as np
import pytest

from nccl_tf.errors import UserError
from nccl_tf.reports.figures import bound, figure2, steps
from nccl_tf.reports.figures.diagnostics_data import group_records
from nccl_tf.theory import bounds, estimates
from tests.experiment import sample
from tests.reports.figures import diagnostics_sample


@pytest.fixture
def records():
    return [
        *(diagnostics_sample.record(seed=seed) for seed in (0, 1)),
        *(diagnostics_sample.record("er_reservoir", seed, form="joint") for seed in (0, 1)),
    ]


def ends(record, *path):
    values = []
    for row in record.diagnostics["tasks"]:
        for name in path:
            row = row[name]
        values.append(row)
    return np.array(values)


def panels(figure):
    """The axes by their letter, or by their whole title where they have none."""
    titles = {axes.get_title(loc="left"): axes for axes in figure.axes}
    return {t.partition(" ")[0] if t.startswith("(") else t: axes for t, axes in titles.items()}


def test_forgetting_against_the_sum_and_its_growth(records):
    drawn = panels(figure2.figure2(records))
    # The registry's order: ER-Reservoir stands before NCCL + Ring.
    for line, members in zip(drawn["(a)"].lines, (records[2:], records[:2]), strict=False):
        np.testing.assert_allclose(
            line.get_xdata(), [ends(r, "gamma_surrogate")[-1] for r in members]
        )
        np.testing.assert_allclose(line.get_ydata(), [r.forgetting for r in members])
    for line, band, members in zip(
        drawn["(b)"].lines, drawn["(b)"].collections, (records[2:], records[:2]), strict=True
    ):
        sums = np.array([ends(r, "gamma_surrogate") for r in members])
        np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
        np.testing.assert_allclose(line.get_ydata(), sums.mean(0))
        corners = band.get_paths()[0].vertices
        assert (sums.mean(0) + sums.std(0)).max() == pytest.approx(corners[:, 1].max())


def test_gradient_norms_and_test_losses(records):
    drawn = panels(figure2.figure2(records))
    line, last = drawn["(c)"].lines[2:4]
    norms = [ends(r, "first_task", "gradient_norm") for r in records[:2]]
    losses = [ends(r, "first_task", "test_loss") for r in records[:2]]
    np.testing.assert_allclose(line.get_xdata(), np.concatenate(norms))
    np.testing.assert_allclose(line.get_ydata(), np.concatenate(losses))
    np.testing.assert_allclose(
        last.get_xydata(), [(n[-1], v[-1]) for n, v in zip(norms, losses, strict=True)]
    )
    for letter, members in (("(d)", records[:2]), ("(e)", records[2:])):
        line, red = drawn[letter].lines
        sums = np.mean([ends(r, "gamma_surrogate") for r in members], axis=0)
        norms = np.mean([ends(r, "first_task", "gradient_norm") for r in members], axis=0)
        np.testing.assert_allclose(line.get_xdata(), sums)
        np.testing.assert_allclose(line.get_ydata(), norms)
        np.testing.assert_allclose(red.get_ydata(), norms[0])


def test_b_at_task_ends(records):
    lines = panels(figure2.figure2(records))["(f)"].lines
    each = [[r.diagnostics["tasks"][k]["draws"]["overfitting"] for r in records[:2]]
            for k in (1, 2)]  # fmt: skip
    np.testing.assert_array_equal(lines[1].get_xdata(), [2, 3])
    np.testing.assert_allclose(lines[1].get_ydata(), np.mean(each, axis=(1, 2)))


def test_another_smoothness_moves_gamma_and_b(records):
    drawn = panels(figure2.figure2(records, smoothness=5.0))
    sums = [ends(r, "gamma_surrogate_at_0") + 5 * ends(r, "gamma_surrogate_slope")
            for r in records[:2]]  # fmt: skip
    np.testing.assert_allclose(drawn["(b)"].lines[1].get_ydata(), np.mean(sums, axis=0))
    row = [r.diagnostics["tasks"][1]["draws"] for r in records[:2]]
    b = [np.array(d["overfitting"]) + 4 * np.array(d["overfitting_slope"]) for d in row]
    np.testing.assert_allclose(drawn["(f)"].lines[1].get_ydata()[0], np.mean(b))


def test_the_bound_of_each_task(records):
    record = records[0]
    one, two, three = record.diagnostics["tasks"]
    variance = max(
        estimates.variance_from_errors(np.mean(row["draws"]["error_squared"]), 100 * k, 10)
        for k, row in ((1, two), (2, three))
    )
    gamma = three["gamma_surrogate"] - two["gamma_surrogate"]
    window = bound.windows(record)[1]
    assert window.measured == 3.0**2
    assert window.bound == bounds.minimum_bound(0.7, gamma, variance, 0.1, 10, 1.0)
    b = 10 * np.mean(three["draws"]["overfitting"])
    expected = bounds.minimum_bound(0.7, gamma, variance, 0.1, 10, 1.0, b)
    assert window.bound_with_b == pytest.approx(expected)
    assert one["draws"] is None
    drawn = panels(bound.bound_figure(records))
    values = np.mean([bound.windows(r) for r in records[:2]], axis=0)
    for line, column in zip(drawn["NCCL + Ring"].lines, values.T[:3], strict=True):
        np.testing.assert_allclose(line.get_ydata(), column)
    # |F|^2 = 4 and 9 against 3 and 6.
    assert bound.step_bound_violations(group_records(records)[1]) == 1.0


def test_the_table_of_the_bound_has_the_terms_of_its_windows(records):
    table = bound.bound_table(records)
    cells = dict(zip(table.names, table.rows[1], strict=True))
    windows = [window for record in records[:2] for window in bound.windows(record)]
    assert cells["method"] == "NCCL + Ring"
    assert float(cells["measured ‖∇f‖²"]) == pytest.approx(np.mean([2.0**2, 3.0**2]))
    assert float(cells["bound"]) == pytest.approx(np.mean([w.bound for w in windows]), rel=6e-3)
    rates = [
        bounds.best_c(0.7, gamma[i + 1] - gamma[i], w.variance, 1.0) / np.sqrt(10)
        for record in records[:2]
        for gamma in [ends(record, "gamma_surrogate")]
        for i, w in enumerate(bound.windows(record))
    ]
    assert float(cells["best α"]) == pytest.approx(np.mean(rates), rel=6e-3)
    # 10 steps of a batch of 10, and 20 with a memory batch of 10 beside it.
    assert cells["oracle calls"] == "500"
    assert cells["least Γ"] == "-"  # Not measured in records of before.


def test_the_theorem_is_silent_on_agem_and_finetune(records):
    agem = diagnostics_sample.record("agem")
    finetune = diagnostics_sample.record("finetune", form="stream")
    assert bound.windows(agem) is bound.windows(finetune) is None
    assert set(panels(bound.bound_figure([agem, *records]))) == {
        "ER-Reservoir", "NCCL + Ring",
    }  # fmt: skip
    with pytest.raises(UserError, match="constant alpha_H"):
        bound.bound_figure([agem, finetune])


def test_records_that_do_not_belong_together(records):
    with pytest.raises(UserError, match="--diagnostics"):
        group_records([sample.record()])
    other = diagnostics_sample.record(dataset="split_digits", num_tasks=5)
    with pytest.raises(UserError, match="give --dataset"):
        group_records([*records, other])
    with pytest.raises(UserError, match="2, 3 tasks"):
        group_records([*records, diagnostics_sample.record(seed=5, tasks=2)])
    faster = diagnostics_sample.record(seed=5, learning_rate=0.2)
    titles = [group.title for group in group_records([*records, faster])]
    assert titles[1:] != ["NCCL + Ring"] * 2 and all("NCCL + Ring " in t for t in titles[1:])


def test_steps_over_time(tmp_path):
    record = diagnostics_sample.record()
    rows = diagnostics_sample.write_run(tmp_path / "run", record)
    path = tmp_path / "run" / "steps.csv"
    rows_read = steps.read_steps(path)
    some = steps.read_steps(path, {"step", "cosine_max", "none"})
    assert set(some) == {"step", "cosine_max"}
    np.testing.assert_array_equal(some["cosine_max"], rows_read["cosine_max"])
    axes = steps.steps_figure(record, rows_read).axes
    for place, panel in enumerate(axes):
        np.testing.assert_array_equal(panel.lines[0].get_xdata(), [50, *rows[:, 0]])
        np.testing.assert_allclose(panel.lines[0].get_ydata()[1:], rows[:, 1 + 3 * place])
        assert [line.get_xdata()[0] for line in panel.lines[1:]] == [10, 20]
    with pytest.raises(UserError, match="no alpha_H"):
        steps.steps_figure(sample.record(method="finetune"), {"step": rows[:, 0]})


@pytest.mark.parametrize("text", [b"", b"\n", b"a,b\n1\n", b"a\n1,2\n", b"a\nx\n", b"a\n\xff\n"])
def test_steps_that_are_no_table(tmp_path, text):
    (tmp_path / "steps.csv").write_bytes(text)
    with pytest.raises(UserError, match="cannot read the steps"):
        steps.read_steps(tmp_path / "steps.csv")
