"""The report: one page of HTML of all that the records hold, which loads nothing else."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from nccl_tf.experiment.config.settings import flattened
from nccl_tf.reports.figures.stream import (
    Line,
    accuracy_over_tasks,
    as_svg,
    forgetting_against_accuracy,
    settings_lines,
    training_time,
)
from nccl_tf.reports.figures.style import MATRIX_COLORS
from nccl_tf.reports.paper.parity_tables import parities
from nccl_tf.reports.paper.published import published
from nccl_tf.reports.records import by_settings
from nccl_tf.reports.table import Table, or_dash, with_std
from nccl_tf.reports.tables import results_table
from nccl_tf.reports.terminal import task_counts

Record = Mapping[str, Any]


class Picture(NamedTuple):
    """A picture in the page.

    Attributes:
        title: What it shows.
        data: Address that holds the whole picture.
    """

    title: str
    data: str


class Cell(NamedTuple):
    """A cell of a matrix: its text and colours, "" where it is empty."""

    text: str
    background: str
    color: str


class Experiment(NamedTuple):
    """The seeds of one settings.

    Attributes:
        title: Method and rate.
        anchor: Name in the page.
        settings: What was run, as text by name; what does not exist for it is left out.
        matrix: Mean accuracy over seeds: after which task, and a cell for each task.
        runs: A row for each seed.
        versions: Versions of the packages, each once.
    """

    title: str
    anchor: str
    settings: Mapping[str, str]
    matrix: list[tuple[int, list[Cell]]]
    runs: Table
    versions: list[str]


class StreamPart(NamedTuple):
    """Everything of one stream.

    Attributes:
        title: Data set and head.
        anchor: Name in the page.
        counts: Its tasks, in words.
        pictures: Of all its runs.
        experiments: Its settings.
    """

    title: str
    anchor: str
    counts: str
    pictures: list[Picture]
    experiments: list[Experiment]


def report_tables(records: Sequence[Record]) -> list[Table]:
    """The table of results, and parity with each table of the paper that has a run."""
    with_runs = [parity for parity in parities(published(), records) if parity.has_runs]
    return [results_table(records), *(table for parity in with_runs for table in parity.tables())]


def report_page(records: Sequence[Record]) -> str:
    """The page: tables, pictures, matrices, settings and versions of every run.

    Args:
        records: Of finished runs, one or more on evaluated tasks.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("nccl_tf.reports", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    results, *parity = report_tables(records)
    return environment.get_template("report.html.jinja").render(
        runs=sum(len(group) for group in by_settings(records)),
        streams=_streams(records),
        results=results,
        parity=parity,
    )


def _streams(records: Sequence[Record]) -> list[StreamPart]:
    groups: dict[tuple[str, str, int], list[Record]] = {}
    for group in by_settings(records):
        first = group[0]
        key = (first["dataset"], first["head"], first["evaluated_tasks"])
        groups.setdefault(key, []).extend(group)
    return [_stream(members) for members in groups.values()]


def _stream(records: Sequence[Record]) -> StreamPart:
    first, lines = records[0], settings_lines(records)
    title = f"{first['dataset']}, {first['head']}-head, {first['evaluated_tasks']} tasks"
    pictures = [
        Picture(f"{name}: {title}", _data_address(as_svg(plot(lines))))
        for name, plot in (
            ("Accuracy over tasks", accuracy_over_tasks),
            ("Forgetting against accuracy", forgetting_against_accuracy),
            ("Training time", training_time),
        )
    ]
    anchor = f"{first['dataset']}-{first['head']}-{first['evaluated_tasks']}"
    return StreamPart(
        title, anchor, task_counts(first), pictures, [_experiment(line) for line in lines]
    )


def _experiment(line: Line) -> Experiment:
    first = line.records[0]
    settings = flattened(first["settings"])
    versions = [
        ", ".join(f"{name} {version}" for name, version in record["versions"].items() if version)
        for record in line.records
    ]
    return Experiment(
        f"{line.title}, learning rate {first['settings']['learning_rate']:g}",
        first["settings_hash"][:8],
        {name: _as_text(value) for name, value in settings.items() if value is not None},
        _matrix(line.records),
        _runs(line.records),
        list(dict.fromkeys(versions)),
    )


def _as_text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _matrix(records: Sequence[Record]) -> list[tuple[int, list[Cell]]]:
    """Mean over seeds in whole percent; the next task, not trained yet, in grey.

    Rows without any accuracy, which joint methods have, are left out.
    """
    values = np.array([record["accuracy_matrix"] for record in records], np.float64).mean(0)
    color = colormaps[MATRIX_COLORS]
    rows = []
    for i, row in enumerate(values):
        cells = []
        for j, value in enumerate(row):
            if np.isnan(value):
                cells.append(Cell("", "", ""))
            elif j > i:
                cells.append(Cell(f"{100 * value:.0f}", "", "#767676"))
            else:
                dark = value < 0.5
                cells.append(
                    Cell(f"{100 * value:.0f}", to_hex(color(value)), "#fff" if dark else "#000")
                )
        if any(cell.text for cell in cells):
            rows.append((i + 1, cells))
    return rows


def _runs(records: Sequence[Record]) -> Table:
    numbers = (
        "seed", "accuracy %", "forgetting", "training s", "compiling s", "evaluation s", "steps",
        "skipped", "memory MB",
    )  # fmt: skip
    rows = tuple(
        (
            str(record["seed"]),
            f"{100 * record['average_accuracy']:.2f}",
            with_std(record["forgetting"], None, 4),
            *(f"{record[name]:.1f}" for name in ("train_seconds", "compile_seconds")),
            f"{record['eval_seconds']:.1f}",
            str(record["steps"]),
            or_dash(record["skipped_steps"]),
            f"{record['peak_memory_bytes'] / 1e6:.0f}",
            (record["commit"] or "-")[:12],
            (record["state_sha256"] or "-")[:12],
        )
        for record in records
    )
    return Table("runs", "Runs", (*numbers, "commit", "state"), rows, numbers)


def _data_address(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"
