"""Pages of methods, from the registry and the records: an overview, and a page for each.

`python -m docs.make.methods` writes the overview that the repository shows, docs/methods.md.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from nccl_tf.arguments.choices import HEADS
from nccl_tf.arguments.hyperparameters import Hyperparameter
from nccl_tf.commands.paper.parity import select_cells
from nccl_tf.commands.paper.parity_tables import parities, verdict_table
from nccl_tf.methods.registry import METHODS
from nccl_tf.methods.row import Method
from nccl_tf.records.record import Record
from nccl_tf.reports.figures.stream import accuracy_over_tasks, as_svg, settings_lines
from nccl_tf.reports.figures.style import numbered_style
from nccl_tf.reports.records import by_settings
from nccl_tf.reports.table import as_markdown, markdown_table, titled_markdown
from nccl_tf.reports.tables import results_table, stream_title
from nccl_tf.streams.catalog import DATASETS, NO_CLASSES, StreamRow

OVERVIEW = Path(__file__).parents[1] / "methods.md"


def methods_overview(link: Callable[[Method], str]) -> str:
    """Every method, what it is and needs, and where one does not run, in Markdown.

    Args:
        link: Where a method is explained.
    """
    names = ("method", "title", "what it does", "needs", "source")
    rows = [
        (
            f"[`{row.name}`]({link(row)})", row.title, _first_sentence(row), _needs(row),
            row.source,
        )
        for row in METHODS.values()
    ]  # fmt: skip
    table = markdown_table(names, rows).replace("\\\\", "\\")  # TeX is as it is written
    refused = markdown_table(("method", "stream", "head", "why it is refused"), _refusals())
    return (
        f"# Methods\n\n{table}\n## Where a method does not run\n\n"
        f"At the command, every method runs on every stream with either head, but for:\n\n{refused}"
    )


def source_file(method: Method) -> str:
    """The file of a method's learner, relative to `docs`."""
    return f"../{method.learner_class().__module__.replace('.', '/')}.py"


def _first_sentence(method: Method) -> str:
    return " ".join(_description(method).split("\n\n")[0].split()).rstrip(".")


def _needs(method: Method) -> str:
    """What a method needs beside a network and the task at hand, in a few words."""
    needs = [f"a memory ({method.memory})"] if method.memory else []
    needs += ["all tasks at once"] if method.joint else []
    needs += ["all examples so far"] if method.joins else []
    needs += ["the number of tasks"] if method.takes_num_tasks else []
    if not set(method.networks) & set(Method.networks):
        needs.append(f"a network of {' or '.join(f'`{name}`' for name in method.networks)}")
    return ", ".join(needs) or "-"


def unsupported_reason(method: Method, dataset: StreamRow, head: str) -> str | None:
    """Why a method does not run on a stream with a head, as a sentence; None where it runs."""
    if not dataset.has_classes:
        return NO_CLASSES
    if head not in dataset.heads:
        return (
            "every task of the stream has the same classes, so that there is nothing for a "
            f"{head}-head to tell apart"
        )
    reason = method.unsupported_reason(dataset.kind, head)
    return reason and f"{method.name}: {reason}"


def _refusals() -> list[tuple[str, str, str, str]]:
    """Method, streams and heads for each reason for which the command refuses them."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for method in METHODS.values():
        for dataset in DATASETS.values():
            for head in HEADS:
                reason = unsupported_reason(method, dataset, head)
                if reason:
                    found.setdefault(reason, []).append((method.name, dataset.name, head))
    rows = []
    for reason, cases in found.items():
        methods, streams, heads = (list(dict.fromkeys(part)) for part in zip(*cases, strict=True))
        every = len(methods) == len(METHODS)
        rows.append(
            (
                "every one" if every else ", ".join(f"`{name}`" for name in methods),
                ", ".join(f"`{name}`" for name in streams),
                " and ".join(heads),
                reason if every else reason.partition(": ")[2],
            )
        )
    return rows


def facts(method: Method) -> list[str]:
    """Facts of a method in the registry besides its hyperparameters, a sentence each."""
    rates = method.learning_rates
    return [
        f"Learns {'all tasks at once' if method.joint else 'task after task'}; "
        f"default passes over the examples: {method.epochs}.",
        f"Memory: {method.memory or 'none'}.",
        f"Default learning rate (step size): {rates.mnist:g} on MNIST and digits, "
        f"{rates.cifar:g} on CIFAR, {rates.mini_imagenet:g} on mini-ImageNet.",
        *_batch_sizes(method),
        f"Several devices or workers (`--distribute`): {'yes' if method.on_replicas else 'no'}.",
        *(f"By default `--{name}={value}`." for name, value in method.options.items()),
        *(f"No `--{name}`, because it {reason}." for name, reason in method.refuses.items()),
    ]


def _batch_sizes(method: Method) -> list[str]:
    """A sentence on the method's stream batches, where they are not those of most methods."""
    mnist, elsewhere = method.batch_sizes
    if (mnist, elsewhere) == Method.batch_sizes:
        return []
    return [f"Default stream batch: {mnist} on MNIST and digits, {elsewhere} elsewhere."]


def hyperparameter_table(method: Method) -> str:
    """The numbers of a method as a table, or "" where it has none."""
    if not method.hyperparameters:
        return ""
    names = ["hyperparameter", "symbol", "unit", "default", "values", "meaning"]
    return markdown_table(names, [_cells(row) for row in method.hyperparameters])


def _cells(row: Hyperparameter) -> list[str]:
    return [
        f"`{row.name}`", row.symbol or "-", row.unit or "-", row.describe_default(),
        row.describe_range(), row.help,
    ]  # fmt: skip


def method_page(name: str, records: Sequence[Record], *, picture: bool) -> str:
    """The page of a method in Markdown, ending in a newline.

    Args:
        name: Name in the registry.
        records: All finished runs.
        picture: Whether the picture of `method_picture` lies beside the page, as NAME.svg.
    """
    method = METHODS[name]
    parts = [
        f"# {method.title}",
        f"`{name}`: {method.source}.",
        _description(method),
        "## Arguments",
        "\n".join(f"* {fact}" for fact in facts(method)),
        hyperparameter_table(method) or "It has no numbers of its own.",
        f"```sh\npython run.py --method={name}\n```",
        "## Our runs",
        _results(name, records, picture),
        "## Published numbers",
        _parity(name, records),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def method_picture(name: str, records: Sequence[Record]) -> str | None:
    """Accuracy over the tasks on the stream with most seeds of the method, beside ER and NCCL.

    Of each method its most accurate settings are drawn.

    Returns:
        An SVG, or None where there is no run of the method with several tasks.
    """
    runs = [r for r in records if r.method == name and _has_matrix(r)]
    if not runs:
        return None
    streams = list(map(stream_title, runs))
    # Of the streams with most runs, the first in the order of the records.
    chosen = max(dict.fromkeys(streams), key=streams.count)
    methods = (name, "finetune", "er_ring", "nccl_ring")
    compared = [
        r for r in records
        if r.method in methods and stream_title(r) == chosen and _has_matrix(r)
    ]  # fmt: skip
    lines = enumerate(settings_lines(_best(compared)))
    # Numbered, because of all methods some share a colour.
    return as_svg(accuracy_over_tasks([line._replace(look=numbered_style(i)) for i, line in lines]))


def _best(records: Sequence[Record]) -> list[Record]:
    """The runs of the most accurate settings of each method."""
    best: dict[str, list[Record]] = {}
    for group in by_settings(records):
        rivals = (best.get(group[0].method, group), group)
        best[group[0].method] = max(
            rivals, key=lambda runs: np.mean([run.average_accuracy for run in runs])
        )
    return [record for group in best.values() for record in group]


def _has_matrix(record: Record) -> bool:
    matrix = record.accuracy_matrix
    return record.forgetting is not None and matrix[0][0] is not None


def _description(method: Method) -> str:
    """The text of the learner's docstring before its arguments, with its formulas."""
    text = inspect.getdoc(method.learner_class()) or ""
    return re.split(r"^(?:Args|Raises):$", text, flags=re.MULTILINE)[0]


def _results(name: str, records: Sequence[Record], picture: bool) -> str:
    runs = [record for record in records if record.method == name]
    if not runs:
        return "There is no finished run of it in `results` yet."
    parts = [as_markdown(results_table(runs, records))]
    if picture:
        text = "Mean accuracy over the tasks so far, of the best settings of each method"
        parts.append(f"![{text}]({name}.svg)")
    return "\n".join(parts)


def _parity(name: str, records: Sequence[Record]) -> str:
    cells = [cell for cell in select_cells(None) if cell.method == name]
    if not cells:
        return "No paper whose numbers are read here has one of it."
    tables = [verdict_table(p.table, p.comparisons) for p in parities(cells, records)]
    where = "The verdicts are defined in [Reproducing the paper](../reproduction.md#parity)."
    return f"{where}\n\n{titled_markdown(tables)}"


if __name__ == "__main__":
    OVERVIEW.write_text(methods_overview(source_file))
