"""The command `figures`: which records it draws, and where the pictures go."""

import pytest
from PIL import Image

from nccl_tf.commands.figures import run
from nccl_tf.errors import UserError
from nccl_tf.reports.figures import style
from tests.commands.test_flags import parsed
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


@pytest.mark.parametrize(("name", "more"), [("2", []), ("steps", ["--method=nccl_ring"])])
def test_it_draws_png_and_pdf(folder, capsys, name, more):
    png, pdf = (folder / "figures" / f"figure_{name}.{kind}" for kind in ("png", "pdf"))
    assert figures(folder, f"--figure={name}", *more) == 0
    assert capsys.readouterr() == (f"see {png}\nsee {pdf}\n", "")
    assert Image.open(png).size[0] == pytest.approx(6.75 * 200, abs=2)
    content = pdf.read_bytes()
    assert content.startswith(b"%PDF") and b"/FontFile2" in content  # Letters as outlines.


def test_broken_records_are_left_out_and_counted(folder, capsys, monkeypatch):
    monkeypatch.setattr(style, "save", lambda *_: [])
    argv = ["--figure=steps", "--method=nccl_ring"]
    (folder / "runs" / "broken").mkdir()
    (folder / "runs" / "broken" / "result.json").write_text("{")
    assert figures(folder, *argv) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("left out: ") and "is not JSON" in first
    assert last == "left out 1 broken of 3"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--figure=steps"], "found 2 runs"),
        (["--figure=3"], "unknown --figure '3'"),
        (["--method=gem"], "no record has diagnostics"),
        (["--figure_dir=/dev/null/x"], "choose another --figure_dir"),
        (["--figure=bound", "--smoothness=2"], "--smoothness belongs to --figure=2"),
        (["--smoothness=-3"], "smoothness"),
    ],
)
def test_bad_input(folder, argv, said):
    with pytest.raises(UserError, match=said):
        figures(folder, *argv)
