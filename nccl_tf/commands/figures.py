"""The command `figures`: a picture from the records of finished runs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nccl_tf.arguments.choices import FIGURES
from nccl_tf.arguments.hyperparameters import SMOOTHNESS
from nccl_tf.arguments.parameters import OUTPUT, Setting
from nccl_tf.commands._command import ALL, FILTERS, OF_RECORDS, Command
from nccl_tf.commands._output import read_asked
from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.records.options import resolve_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nccl_tf.reports.records import Record
    from nccl_tf.reports.table import Table

_FIGURE = Setting(
    "figure", "choice", "2", topic=OUTPUT, choices=FIGURES,
    help=(
        "2 (the paper's figure 2, at the runs' L or that of --smoothness), bound (gradient norms "
        "and the theorem's bound), steps (step sizes of one run over time) or accuracy (over the "
        "tasks so far, of one stream: a line for each settings, a band of one standard deviation "
        "over seeds)"
    ),
)  # fmt: skip
_FIGURE_DIR = Setting(
    "figure_dir", "text", "figures", topic=OUTPUT, help="folder of the pictures"
)  # fmt: skip


_DASHES = ("-", "--", ":", "-.")


def run(flag_values: Mapping[str, Any]) -> int:
    """Draw the picture that `--figure` names, as PNG and as PDF; of the bound print its numbers.

    Raises:
        UserError: The figure is unknown, there are no fitting records, or a file cannot be written.
    """
    from nccl_tf.reports.figures.style import paper_style, save
    from nccl_tf.reports.table import as_markdown

    output_dir = Path(resolve_options(flag_values).output_dir)
    name = _FIGURE.value(flag_values)
    smoothness = flag_values["smoothness"]
    if smoothness is not None:
        if name != "2":
            raise UserError(f"--smoothness belongs to --figure=2: leave it out of --figure={name}")
        SMOOTHNESS.check(smoothness)
    figure, table = (
        (_steps(flag_values, output_dir), None)
        if name == "steps"
        else _of_records(name, flag_values, output_dir)
    )
    folder = Path(_FIGURE_DIR.value(flag_values))
    with translate_os_error(f"into {folder}", "choose another --figure_dir"), paper_style():
        for path in save(figure, folder, f"figure_{name}"):
            print(f"see {path}")
    if table is not None:
        print(f"\n{as_markdown(table)}", end="")
    return 0


def _of_records(
    name: str, flag_values: Mapping[str, Any], folder: Path
) -> "tuple[Figure, Table | None]":
    """The picture, and the numbers that are printed beside it."""
    from nccl_tf.reports.figures.bound import bound_figure, bound_table
    from nccl_tf.reports.figures.figure2 import figure2

    records = read_asked(flag_values).records
    if name == "accuracy":
        return _accuracy(records), None
    with _translate_odd_measurements(folder):
        if name == "bound":
            return bound_figure(records), bound_table(records)
        return figure2(records, flag_values["smoothness"]), None


def _accuracy(records: "Sequence[Record]") -> "Figure":
    from nccl_tf.reports.figures.stream import accuracy_over_tasks, settings_lines
    from nccl_tf.reports.records import is_trial
    from nccl_tf.reports.tables import stream_title

    streams = sorted({stream_title(record) for record in records if not is_trial(record)})
    if len(streams) != 1:
        raise UserError(
            f"received records of {len(streams)} streams ({'; '.join(streams) or 'none'}): "
            "expected one; give --dataset, --method and --seeds, or --output_dir=FOLDER of its runs"
        )
    lines, methods = [], Counter[str]()
    for line in settings_lines(records):
        # Settings of one method have its colour and marker.
        dash = _DASHES[methods[line.records[0].method] % len(_DASHES)]
        methods[line.records[0].method] += 1
        lines.append(line._replace(look={**line.look, "linestyle": dash}))
    return accuracy_over_tasks(lines)


def _steps(flag_values: Mapping[str, Any], folder: Path) -> "Figure":
    from nccl_tf.reports.figures.steps import read_steps, steps_figure

    runs = read_asked(flag_values).runs
    files = [(run.record, run.folder / "steps.csv") for run in runs if run.folder is not None]
    files = [(record, path) for record, path in files if path.is_file()]
    if len(files) != 1:
        raise UserError(
            f"found {len(files)} runs with a steps.csv below {folder}: expected one; give "
            "--output_dir=FOLDER of the run, or --dataset, --method and --seeds; a published "
            "record has no steps.csv, so that its run has to be made again"
        )
    ((record, path),) = files
    with _translate_odd_measurements(path):
        return steps_figure(record, read_steps(path))


@contextmanager
def _translate_odd_measurements(place: Path) -> Iterator[None]:
    """Translate what drawing raises for measurements of other names, types or numbers.

    Raises:
        UserError: It raised something.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"the measurements in {place} cannot be drawn ({type(error).__name__}: {error}): "
            "expected those of finished runs as they were written; run again what was changed"
        ) from error


COMMAND = Command(
    "figures", "[--figure=2]", "pictures for a paper", run,
    first=("figure", *OF_RECORDS, "figure_dir", "smoothness"),
    flags=(_FIGURE, _FIGURE_DIR),
    defaults=ALL,
    helps=FILTERS,
)  # fmt: skip
