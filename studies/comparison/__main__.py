"""Replay methods under one protocol: docs/comparison.md of the records in results/.

python -m studies.comparison [--check] [--figures] [--run_missing --workers=2 ...]
"""

import argparse
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from docs.make.generated_files import print_file_status, put_between_marks, put_text
from nccl_tf.methods.registry import METHODS, get_method
from nccl_tf.records.spread import spread
from nccl_tf.reports.costs import BYTES, EXAMPLES, cost_cells
from nccl_tf.reports.figures.style import PAPER_WIDTH, new_figure, numbered_style, paper_style, save
from nccl_tf.reports.table import markdown_table, mean_std, or_dash
from studies.comparison import which_method
from studies.comparison.step_costs import read_costs
from studies.study import ROOT, Record, Result, Study, main

STUDY = Study(ROOT / "studies" / "comparison", (ROOT / "results",))
PAGE, CHOICE = ROOT / "docs" / "comparison.md", ROOT / "docs" / "which_method.md"
AT_AN_END = "*"
"""Beside a value at an end of its grid."""
_NUMBERS = ("accuracy %", "forgetting", "averaged accuracy %", "averaged forgetting", "seeds")
_PLAIN = (("average_accuracy", 100, 1), ("forgetting", 1, 3))
_ABOUT = (
    "`studies/comparison/plan.toml` is the plan and `chosen.toml` the result of tuning. `python -m "
    "studies.comparison --run_missing` makes missing runs, `python -m studies.comparison` writes "
    "this page from the records. Figures are means ± standard deviations over the seeds. Bytes "
    "stored and examples passed are explained with [a run's files](outputs.md#costs). The time of "
    "a step is processor time over fine-tuning's, measured side by side with a small dense network "
    "at commit {commit} (`python -m studies.comparison.step_costs`), and stands beside accuracies "
    "of dense networks alone. The bytes stored have the copy of averaged weights, 4 bytes a "
    "weight, the same in every row that has one: where a memory is small, that is most of them. "
    "A star marks a value at an end of its grid, beyond which better ones may lie."
)
# What makes two runs learn the same stream with the same network.
_STREAM = (
    "dataset", "head", "num_tasks", "tuning_tasks", "tasks", "max_tasks", "examples_per_task",
    "batch_size", "network", "hidden", "angles",
)  # fmt: skip


def page(study: Study, records: Sequence[Record]) -> str:
    """The page: what was reached, then under which protocol."""
    results = {title: rows for title, rows in study.results(records).items() if rows[0].records}
    parts = [
        f"# {study.plan['title']}",
        study.plan["summary"],
        "## What is reached with which memory",
        _memory_table(results, records),
        "Joint training learns all tasks at once, in one pass: an upper bound.",
    ]
    times, commit = read_costs()
    for title, rows in results.items():
        parts += _section(title, rows, times)
    parts += [
        "## Protocol",
        study.plan["text"],
        textwrap.fill(_ABOUT.format(commit=commit[:8]), 100),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def picture_name(setting: Mapping[str, Any]) -> str:
    """Name of a setting's picture in docs/images."""
    return f"comparison_{setting['name']}.png"


def _section(title: str, results: Sequence[Result], times: Mapping[str, float]) -> Iterator[str]:
    setting = results[0].cell.setting
    yield f"## {title}"
    yield " ".join(f"`--{name}={value}`" for name, value in setting["flags"].items())
    yield f"![{_describe(results)}](images/{picture_name(setting)})"
    numbers = (*_NUMBERS, BYTES, EXAMPLES, "time of a step")
    rows = [_row(result, times) for result in results]
    if any(result.cell.settings().network != "mlp" for result in results):
        numbers, rows = numbers[:-1], [row[:-1] for row in rows]  # It is a dense network's time.
    yield markdown_table(("system", "tuned", *numbers), rows, numbers)
    for result in results:
        cell = result.cell
        averaging = get_method(cell.system["flags"]["method"]).option_refusal("average_weights")
        if cell.refusal():
            yield f"{cell.title}: {cell.refusal()}."
        elif averaging:
            yield f"{cell.title} has no averaged weights: it {averaging}."


def _row(result: Result, times: Mapping[str, float]) -> list[str]:
    kinds = ("", "averaged_") if result.averaged else ("",)
    cells = [
        which_method.of_seeds(result.records, f"{kind}{name}", scale, digits)
        if result.records
        else "-"
        for kind in kinds
        for name, scale, digits in _PLAIN
    ]
    cell, count = result.cell, len(result.records)
    seeds = str(count) if count == len(cell.seeds) else f"{count} of {len(cell.seeds)}"
    tuned = ", ".join(
        f"{name} {cell.chosen[name]}{AT_AN_END * cell.is_at_an_end(name)}"
        for name in cell.grid
        if cell.chosen
    )
    if tuned:
        tuned += f" (of {math.prod(map(len, cell.grid.values()))} points)"
    dashes = ["-"] * (4 - len(cells))
    costs = ["-"] * 3
    if result.records:
        *kept, _ = cost_cells(result.records, {})
        costs = [*kept, or_dash(times.get(cell.system["flags"]["method"]))]
    return [cell.title, tuned or "-", *cells, *dashes, "-" if cell.refusal() else seeds, *costs]


def _describe(results: Sequence[Result]) -> str:
    """The picture in words: each system's accuracy and forgetting, rounded as in the table."""
    points = []
    for r in results:
        if r.records:
            accuracy, forgetting = (
                mean_std(r.records, *number).partition(" ")[0] for number in _PLAIN
            )
            points.append(f"{r.cell.title} {accuracy} % and {forgetting}")
    return f"Accuracy against forgetting: {', '.join(points)}"


def _memory_table(results: Mapping[str, Sequence[Result]], records: Sequence[Record]) -> str:
    rows = []
    for title, found in results.items():
        kinds = [
            (r, kind) for r in found if r.records for kind in ("", "averaged_")[: 1 + r.averaged]
        ]
        best, kind = max(kinds, key=lambda one: one[0].metrics(one[1])[:, 0].mean())
        joint = _joint_training(best.records[0], records)
        waiting = any(not row.records and not row.cell.refusal() for row in found)
        rows.append(
            (
                title + (" (not all systems have run)" if waiting else ""),
                or_dash(best.cell.settings().memory_capacity),
                best.cell.title + (", averaged weights" if kind else ""),
                mean_std(best.records, f"{kind}average_accuracy", 100, 1),
                mean_std(best.records, f"{kind}forgetting", 1, 3),
                which_method.of_seeds(joint, "average_accuracy", 100, 1) if joint else "-",
            )
        )
    names = ("setting", "memory", "best system", "accuracy %", "forgetting", "joint training %")
    return markdown_table(names, rows, (names[1], *names[3:]))


def _joint_training(like: Record, records: Sequence[Record]) -> list[Record]:
    """Records of joint training in one pass of the same stream and network: the most seeds."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        row, settings = METHODS.get(record.method), record.settings
        same = all(getattr(settings, name) == getattr(like.settings, name) for name in _STREAM)
        if row and row.joint and same and settings.epochs == 1:
            groups.setdefault(record.settings_hash, []).append(record)

    def order(group: Sequence[Record]) -> tuple[int, float]:
        return len(group), sum(record.average_accuracy for record in group) / len(group)

    return max(groups.values(), key=order, default=[])


def figure(results: Sequence[Result]) -> Any:
    """A point for each system with bars of one standard deviation, and its averaged weights'."""
    names = [system["name"] for system in results[0].cell.plan["systems"]]
    with paper_style():
        drawn = new_figure((PAPER_WIDTH, 3.6))
        axes = drawn.add_subplot()
        for result in (r for r in results if r.records):
            look = numbered_style(names.index(result.cell.system["name"]))
            found = [result.metrics(kind) for kind in ("", "averaged_")[: 1 + result.averaged]]
            points = [spread(rows)[:2] for rows in found]
            axes.plot(
                [mean[1] for mean, _ in points], [mean[0] for mean, _ in points],
                color=look["color"], lw=1,
            )  # fmt: skip
            for (mean, std), filled in zip(points, (True, False), strict=False):
                axes.errorbar(
                    mean[1], mean[0], xerr=std[1], yerr=std[0], fmt=look["marker"],
                    color=look["color"], markerfacecolor=look["color"] if filled else "white",
                    markersize=7, elinewidth=0.8, label=result.cell.title if filled else None,
                )  # fmt: skip
        axes.set_xlabel("forgetting (fraction)")
        axes.set_ylabel("accuracy (%)")
        axes.set_title("filled: the weights as they are; open: their moving average")
        drawn.legend(loc="outside right upper", frameon=False)
    return drawn


def show(asked: argparse.Namespace, records: Sequence[Record]) -> int:
    """Write the page, and the pictures where they are asked for; 1 if `--check` finds another."""
    if asked.figures:
        for rows in STUDY.results(records).values():
            if rows[0].records:
                name = picture_name(rows[0].cell.setting)
                with paper_style():
                    save(figure(rows), ROOT / "docs" / "images", name.removesuffix(".png"), dpi=150)
    before = put_text(PAGE, PAGE.read_text(), page(STUDY, records), check=asked.check)
    shown = which_method.table(STUDY.results(records))
    same = put_between_marks(CHOICE, "methods", shown, check=asked.check)
    codes = [
        print_file_status(path, current, asked.check)
        for path, current in ((PAGE, before), (CHOICE, same))
    ]
    return max(codes)


if __name__ == "__main__":
    main(STUDY, show, __doc__)
