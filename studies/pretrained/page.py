"""The tables, sentences and the picture of the results."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nccl_tf.reports.figures.style import (
    PAPER_WIDTH,
    new_figure,
    numbered_style,
    paper_style,
    save,
)
from nccl_tf.reports.table import markdown_table
from studies.pretrained import blocks
from studies.pretrained.runs import FIGURES, HERE, NETWORKS, PLAN, Cell, Results, Row, cells, chosen

_NAMES = (
    "system", "tuned", "seeds", "accuracy %", "forgetting", "seconds", "kept, MB",
    "examples passed",
)  # fmt: skip
_RATE = "learning_rate"
_BLOCKS = "DINOv2-small, the last three blocks, one seed, not tuned"

Line = tuple[Cell, Row, list[Row]]


def lines(results: Results, network: str, passes: int) -> list[Line]:
    """The systems on a network with their numbers and results, the most accurate first."""
    found = []
    for cell in cells():
        best = chosen(results, cell) if (cell.passes, cell.network) == (passes, network) else None
        if best is None:
            continue
        if rows := _of_seeds(results, cell, best):
            found.append((cell, best, rows))
    return _sorted(found)


def _of_seeds(results: Results, cell: Cell, numbers: Row) -> list[Row]:
    """The results of the plan's seeds that did not diverge."""
    rows = [results.found(cell.key(seed, numbers)) for seed in PLAN["seeds"]]
    return [row for row in rows if row and row["accuracy"]]


def block_lines(results: Results) -> list[Line]:
    """As `lines`, of the systems in which blocks learn."""
    found = []
    for cell in blocks.cells():
        row = results.found(cell.key(blocks.PART["seed"], cell.system["options"]))
        if row:
            found.append((cell, cell.system["options"], [row]))
    return _sorted(found)


def _sorted(found: list[Line]) -> list[Line]:
    return sorted(found, key=lambda line: -np.mean([row["accuracy"] for row in line[2]]))


def tables(results: Results) -> str:
    """All tables."""
    made = {
        _heading(name, passes): lines(results, name, passes)
        for passes in PLAN["passes"]
        for name in NETWORKS
    }
    made[_BLOCKS] = block_lines(results)
    texts = [f"### {title}\n\n{_table(found)}" for title, found in made.items() if found]
    return "\n".join(texts) or "There are no results yet: `--run_missing` makes them.\n"


def _heading(network: str, passes: int) -> str:
    return f"{NETWORKS[network]}, {passes} pass{'es' if passes > 1 else ''}"


def _percent(rows: list[Row]) -> str:
    return f"{100 * np.mean([row['accuracy'] for row in rows]):.1f}"


def sentence(results: Results) -> str:
    """What the systems reached on the first network in one pass, for those who choose a method."""
    (network, title), part = next(iter(NETWORKS.items())), PLAN["evaluated"]
    reached = []
    for cell, _, rows in lines(results, network, 1):
        seed = " (one seed)" if len(rows) == 1 else ""
        reached.append(f"{cell.system['title']} {_percent(rows)}{seed}")
    return (
        f"On features of {title}, split CIFAR-100 in {part['tasks']} tasks with a single head, "
        f"{PLAN['memory']} slots where there is a memory, measured with one pass, accuracy in %: "
        f"{'; '.join(reached)}.\n"
    )


def on_backbones(results: Results) -> str:
    """What an alignment is worth, and means alone, on each network that has those rows."""
    wanted = ("mask_of_task", "alignment", "joint", "slda", "ncm")
    parts, seeds = [], set()
    for network, title in NETWORKS.items():
        found = {cell.system["name"]: rows for cell, _, rows in lines(results, network, 1)}
        if found.keys() >= set(wanted):
            seeds |= {len(found[name]) for name in wanted}
            head, aligned, joint, slda, means = (_percent(found[name]) for name in wanted)
            parts.append(
                f"on {title} an alignment lifts a head from {head} to {aligned}, where joint "
                f"training has {joint}, SLDA {slda} and nearest means {means}"
            )
    if not parts:
        return ""
    each = " or ".join(map(str, sorted(seeds))) + (" seed each" if seeds == {1} else " seeds each")
    return (
        f"In one pass over {PLAN['evaluated']['tasks']} tasks of split CIFAR-100, accuracy in % "
        f"({each}): {'; '.join(parts)}.\n"
    )


def other_rates(results: Results) -> str:
    """Rates that were run on all classes and that tuning did not choose, in one pass."""
    texts = []
    for cell in cells():
        best = chosen(results, cell) if cell.passes == 1 else None
        if best is None or _RATE not in best:
            continue
        reached = {
            rate: [row["accuracy"] for row in _of_seeds(results, cell, {_RATE: rate})]
            for rate in PLAN["rates"]
        }
        tuned = reached.pop(best[_RATE])
        texts += [
            f"On {NETWORKS[cell.network]}, {cell.system['title']} has {100 * np.mean(tuned):.1f} % "
            f"at its tuned rate of {best[_RATE]}, and {100 * np.mean(others):.1f} % at {rate}.\n"
            for rate, others in reached.items()
            if others and len(others) == len(tuned)
        ]
    return "".join(texts)


def left(results: Results) -> str:
    """What of the plan has not been run."""
    parts = []
    for passes, network in itertools.product(PLAN["passes"], NETWORKS):
        names = []
        for cell in cells():
            if (cell.passes, cell.network) == (passes, network):
                best = chosen(results, cell)
                made = (
                    0
                    if best is None
                    else sum(
                        results.found(cell.key(seed, best)) is not None for seed in PLAN["seeds"]
                    )
                )
                if made < (count := len(PLAN["seeds"])):
                    names.append(
                        cell.system["title"] + (f" ({made} of {count} seeds)" if made else "")
                    )
        if names:
            parts.append(f"* {_heading(network, passes)}: {'; '.join(names)}.")
    if names := [each.cell.system["title"] for each in blocks.missing(results)]:
        parts.append(f"* {_BLOCKS}: {'; '.join(names)}.")
    if not parts:
        return "Every run of the plan is made.\n"
    return "**Not run yet**; the commands below make them:\n\n" + "\n".join(parts) + "\n"


def _table(found: list[Line]) -> str:
    machines = Counter(row.get("devices") for *_, rows in found for row in rows)
    usual = machines.most_common(1)[0][0]
    shown = []
    for cell, best, rows in found:
        numbers = ", ".join(f"{k} {v}" for k, v in best.items())
        # Times of two machines are no figures of one column.
        values = {name: [row[name] for row in rows] for name in FIGURES} | {
            "seconds": [row["seconds"] for row in rows if row.get("devices") == usual]
        }
        texts = [_shown(name, values[name]) for name in FIGURES]
        shown.append([cell.system["title"], numbers, str(len(rows)), *texts])
    return markdown_table(_NAMES, shown, _NAMES[2:])


def _shown(name: str, values: list[float | None]) -> str:
    """The values of the seeds in a cell."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "-"
    mean, spread = np.mean(numbers), np.std(numbers)
    varies = len(numbers) > 1
    return {
        "accuracy": f"{100 * mean:.1f}" + (f" ± {100 * spread:.1f}" if varies else ""),
        "forgetting": f"{mean:.3f}" + (f" ± {spread:.3f}" if varies else ""),
        "seconds": f"{mean:.0f}",
        "bytes_stored": f"{mean / 1e6:.2f}",
        "examples_passed": f"{mean:,.0f}",
    }[name]


def draw(results: Results, folder: Path, name: str) -> None:
    """Draw accuracy and what is kept, one pass on each network: a point for each system.

    A network without results is left out.
    """
    found = {network: lines(results, network, 1) for network in NETWORKS}
    found = {network: of_network for network, of_network in found.items() if of_network}
    titles = {system["name"]: system["title"] for system in PLAN["systems"]}
    numbers, labelled = {name: i for i, name in enumerate(titles)}, set()
    with paper_style():
        drawn = new_figure((PAPER_WIDTH, 3.4))
        parts = drawn.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for axes, (network, of_network) in zip(parts, found.items(), strict=True):
            for cell, _, rows in of_network:
                system = cell.system["name"]
                look = numbered_style(numbers[system])
                of_seeds = [100 * row["accuracy"] for row in rows]
                # A log axis has no 0: a learner that keeps nothing stands at its left end.
                kept = max(np.mean([row["bytes_stored"] for row in rows]) / 1e6, 1e-3)
                axes.errorbar(
                    kept, np.mean(of_seeds), yerr=np.std(of_seeds), fmt=look["marker"],
                    color=look["color"], markersize=6, elinewidth=0.8,
                    label=None if system in labelled else titles[system],
                )  # fmt: skip
                labelled.add(system)
            axes.set_xscale("log")
            axes.minorticks_off()
            axes.set_title(f"{NETWORKS[network]}, 1 pass")
            axes.set_xlabel("kept, MB (0 at the left)")
        drawn.axes[0].set_ylabel("accuracy (%)")
        drawn.legend(loc="outside right upper", frameon=False)
        save(drawn, folder, name, dpi=150)


_PAGE, _DOCS = HERE / "README.md", HERE.parents[1] / "docs"
PARTS: tuple[tuple[Path, str, Callable[[Results], str]], ...] = (
    (_PAGE, "table", tables),
    (_PAGE, "left", left),
    (_PAGE, "rates", other_rates),
    (_DOCS / "which_method.md", "pretrained", sentence),
    (_DOCS / "pretrained_backbone.md", "study", on_backbones),
)
"""What is made of the results: a page, the name of its marks there, and the text between them."""
