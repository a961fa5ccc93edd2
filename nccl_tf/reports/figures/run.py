"""Pictures of a run: the accuracy matrix, and the accuracy of each task over time."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from nccl_tf.records.files import write_file
from nccl_tf.records.record import Record
from nccl_tf.reports.figures.style import PAPER_WIDTH, new_figure, style
from nccl_tf.reports.figures.task_axes import draw_matrix, draw_over_time
from nccl_tf.reports.terminal import task_counts


def accuracy_matrix(record: Record) -> Figure:
    """The matrix with whole percent in each cell, as `draw_matrix` draws it."""
    matrix = record.accuracy_matrix
    cell = min(0.4, (PAPER_WIDTH - 1.8) / len(matrix))
    side = max(4.2, 1.2 + cell * len(matrix))
    with style():
        figure = new_figure((min(side + 1.0, PAPER_WIDTH), side))
        draw_matrix(figure.subplots(), matrix, _title(record), fontsize=8 * cell / 0.4)
    return figure


def accuracy_over_time(record: Record) -> Figure:
    """Accuracy of each task and the mean so far, as `draw_over_time` draws them."""
    with style():
        figure = new_figure((PAPER_WIDTH, 3.8))
        draw_over_time(figure.subplots(), record.accuracy_matrix, _title(record))
    return figure


def save_figures(record: Record, folder: Path) -> list[Path]:
    """Draw both pictures as PNG into `folder`.

    Returns:
        The files, accuracy_matrix.png and accuracy_over_time.png.

    Raises:
        UserError: The folder cannot be written.
    """
    paths = []
    for draw in (accuracy_matrix, accuracy_over_time):
        path = folder / f"{draw.__name__}.png"
        picture = io.BytesIO()
        draw(record).savefig(picture, format="png", dpi=150)
        write_file(path, picture.getvalue())
        paths.append(path)
    return paths


def _title(record: Record) -> str:
    name = f"{record.method} on {record.dataset} ({record.head}-head)"
    return f"{name}, seed {record.seed}\n{task_counts(record)}"
