"""The command `figures`: which records it draws, and where the pictures go."""

import numpy as np
import pytest
from PIL import Image

from nccl_tf.commands.figures import run
from nccl_tf.errors import UserError
from nccl_tf.records.record import write_record
from nccl_tf.reports.figures import style
from tests.commands.test_command_line import parsed
from tests.experiment import sample
from tests.reports.figures import diagnostics_sample


@pytest.fixture
def folder(tmp_path):
    """Runs of NCCL + Ring and ER-Reservoir, below `runs`."""
    er = diagnostics_sample.record("er_reservoir", seed=1, form="joint")
    for name, record in (("a", diagnostics_sample.record()), ("b", er)):
        diagnostics_sample.write_run(tmp_path / "runs" / name, record)
    return tmp_path


def figures(folder, *argv):
    where = (f"--output_dir={folder / 'runs'}", f"--figure_dir={folder / 'figures'}")
    return run(parsed(*where, *argv)[1])


@pytest.mark.parametrize(
    ("name", "more"), [("2", []), ("steps", ["--method=nccl_ring"]), ("accuracy", [])]
)
def test_it_draws_png_and_pdf(folder, capsys, name, more):
    png, pdf = (folder / "figures" / f"figure_{name}.{kind}" for kind in ("png", "pdf"))
    assert figures(folder, f"--figure={name}", *more) == 0
    assert capsys.readouterr() == (f"see {png}\nsee {pdf}\n", "")
    assert Image.open(png).size[0] == pytest.approx(6.75 * 200, abs=2)
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF") and b"/FontFile2" in content  # Letters as outlines.


def test_accuracy_is_of_one_stream_a_line_for_each_settings(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, *_: drawn.append(figure) or [])
    made = [sample.record(seed=seed, method="derpp") for seed in range(3)]
    made += [sample.record(method="derpp", learning_rate=0.05)]
    made.append(sample.record(method="agem", tasks="tuning"))
    for number, record in enumerate(made):
        write_record(record, tmp_path / "runs" / str(number))
    assert figures(tmp_path, "--figure=accuracy") == 0
    (axes,) = drawn[0].axes
    assert len(axes.lines) == len(axes.collections) == 2
    assert {line.get_linestyle() for line in axes.lines} == {"-", "--"}
    so_far = [
        np.mean([np.mean(record.accuracy_matrix[i][: i + 1]) for record in made[:3]])
        for i in range(3)
    ]
    assert any(np.allclose(line.get_ydata(), 100 * np.array(so_far)) for line in axes.lines)
    write_record(sample.record(num_tasks=7), tmp_path / "runs" / "other")
    with pytest.raises(UserError, match="received records of 2 streams"):
        figures(tmp_path, "--figure=accuracy")
    with pytest.raises(UserError, match="received records of 0 streams"):
        figures(tmp_path, "--figure=accuracy", "--method=agem")


def test_broken_records_are_left_out_and_counted(folder, capsys, monkeypatch):
    monkeypatch.setattr(style, "save", lambda *_: [])
    argv = ["--figure=steps", "--method=nccl_ring"]
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "result.json").write_text("{")
    assert figures(folder, *argv) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("left out: ") and "is not JSON" in first
    assert last == "left out 1 of 3"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--figure=steps"], "found 2 runs"),
        (["--figure=3"], "unknown --figure '3'"),
        (["--method=gem"], "has that --dataset, --method and --seeds"),
        (["--figure_dir=/dev/null/x"], "choose another --figure_dir"),
        (["--figure=bound", "--smoothness=2"], "--smoothness belongs to --figure=2"),
        (["--smoothness=-3"], "smoothness"),
    ],
)
def test_bad_input(folder, argv, said):
    with pytest.raises(UserError, match=said):
        figures(folder, *argv)
