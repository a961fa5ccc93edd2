"""The command `figures`: which records a picture is drawn from, and where it goes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from nccl_tf.errors import UserError, check_name
from nccl_tf.experiment.records import FILE_NAME, read_record
from nccl_tf.reports.bound_figure import bound_figure
from nccl_tf.reports.figure2 import figure2
from nccl_tf.reports.steps_figure import read_steps, steps_figure
from nccl_tf.reports.style import paper_style
from nccl_tf.reports.tables import fits, read_records

FIGURES = ("2", "bound", "steps")


def draw(given: Mapping[str, Any], output_dir: Path) -> list[Path]:
    """Draw the picture that `--figure` names, as PNG and as SVG.

    Args:
        given: Flag values by name; `figure_dir`, `dataset`, `method`, `seeds` and `smoothness`, the
            L that figure 2 takes in place of the runs', may be None.
        output_dir: Folder of finished runs.

    Returns:
        The files.

    Raises:
        UserError: The figure is unknown, there are no fitting records, or a file cannot be written.
    """
    name = check_name("figure", given["figure"] or "2", FIGURES)
    if name == "steps":
        figure = _steps(given, output_dir)
    else:
        records, broken = read_records(output_dir)
        for sentence in broken:
            print(f"left out: {sentence}", file=sys.stderr)
        records = [record for record in records if fits(record, given)]
        figure = (
            bound_figure(records, given["dataset"])
            if name == "bound"
            else figure2(records, given["dataset"], given["smoothness"])
        )
    return save(figure, Path(given["figure_dir"] or "figures"), f"figure_{name}")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a picture as PNG, 200 dots an inch, and as SVG.

    Raises:
        UserError: The folder cannot be written.
    """
    paths = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with paper_style():
            figure.savefig(paths[0], dpi=200)
            figure.savefig(paths[1], metadata={"Date": None})
    except OSError as error:
        raise UserError(
            f"cannot write into {folder} ({error.strerror}): choose another --figure_dir"
        ) from error
    return paths


def _steps(given: Mapping[str, Any], folder: Path) -> Figure:
    paths = sorted(folder.rglob(FILE_NAME)) if os.path.isdir(folder) else []
    runs = [(path.parent, read_record(path)) for path in paths]
    runs = [(path, r) for path, r in runs if fits(r, given) and (path / "steps.csv").is_file()]
    if len(runs) != 1:
        raise UserError(
            f"found {len(runs)} runs with a steps.csv below {folder}: expected one; give "
            "--output_dir=FOLDER of the run, or --dataset, --method and --seeds"
        )
    path, record = runs[0]
    return steps_figure(record, read_steps(path / "steps.csv"))
