"""The command `figures`: a picture from the records of finished runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nccl_tf.commands._output import say_broken
from nccl_tf.errors import UserError, writing
from nccl_tf.experiment.config.flag_table import COMMAND_FLAGS
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.reports.figures.bound import bound_figure
from nccl_tf.reports.figures.figure2 import figure2
from nccl_tf.reports.figures.steps import read_steps, steps_figure
from nccl_tf.reports.figures.style import paper_style
from nccl_tf.reports.tables import find_runs, fits, read_records


def run(given: Mapping[str, Any]) -> int:
    """Draw the picture that `--figure` names, as PNG and as SVG.

    Raises:
        UserError: The figure is unknown, there are no fitting records, or a file cannot be written.
    """
    output_dir = Path(resolve_options(given).output_dir)
    name = COMMAND_FLAGS["figure"].value(given)
    figure = _steps(given, output_dir) if name == "steps" else _theory(name, given, output_dir)
    for path in _save(figure, Path(COMMAND_FLAGS["figure_dir"].value(given)), f"figure_{name}"):
        print(f"see {path}")
    return 0


def _theory(name: str, given: Mapping[str, Any], folder: Path) -> Figure:
    records, broken = read_records(folder)
    say_broken(broken, len(records))
    records = [record for record in records if fits(record, given)]
    if name == "bound":
        return bound_figure(records, given["dataset"])
    return figure2(records, given["dataset"], given["smoothness"])


def _steps(given: Mapping[str, Any], folder: Path) -> Figure:
    found, broken = find_runs(folder)
    say_broken(broken, len(found))
    runs = [(path, r) for path, r in found if fits(r, given) and (path / "steps.csv").is_file()]
    if len(runs) != 1:
        raise UserError(
            f"found {len(runs)} runs with a steps.csv below {folder}: expected one; give "
            "--output_dir=FOLDER of the run, or --dataset, --method and --seeds"
        )
    path, record = runs[0]
    return steps_figure(record, read_steps(path / "steps.csv"))


def _save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a picture as PNG, 200 dots an inch, and as SVG."""
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    with writing(f"into {folder}", "choose another --figure_dir"), paper_style():
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(paths[0], dpi=200)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths
