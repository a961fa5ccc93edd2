"""The page of a study in Markdown."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nccl_tf.experiment.study.plan import Plan, StudySetting
from nccl_tf.reports.costs import REFERENCE, Costs
from nccl_tf.reports.study.measures import measures_sections
from nccl_tf.reports.study.pairs import pair_sections
from nccl_tf.reports.study.results import Result, joint_training, read_results
from nccl_tf.reports.table import markdown_table, mean_std, or_dash

_NUMBERS = (
    "accuracy %", "forgetting", "averaged accuracy %", "averaged forgetting", "seeds", "step",
)  # fmt: skip
_PLAIN = (("average_accuracy", 100, 1), ("forgetting", 1, 3))
_ABOUT = (
    "The plan is `{source}`, committed before the runs; what tuning has chosen stands in folders "
    "beside it. `python run.py study --run_missing {flags}` makes what has no record, and "
    "`python run.py study --output_dir={folder} {flags} --docs=FILE` makes this page of the "
    "records. Figures are means ± standard deviations over the seeds; forgetting is a fraction; "
    "averaged figures are of the moving average of the same runs' weights; a step is its "
    "processor time over that of a step of {reference}, both without the average, measured in "
    "turns by `python -m benchmarks.study_steps`."
)


def study_page(
    plan: Plan,
    records: Sequence[Mapping[str, Any]],
    costs: Costs,
    source: str,
    plugins: Sequence[str] = (),
    folder: str = "results",
) -> str:
    """The page of a plan: what was reached, then under which protocol.

    Args:
        plan: The plan.
        records: All that there are; those of the plan and of joint training are looked up.
        costs: Time of a step over that of er_reservoir, by the names of setting and system.
        source: The plan's file, as the command names it.
        plugins: The files of plugins that the plan needs.
        folder: Where its published records are.

    Raises:
        UserError: A flag file is not of the plan.
    """
    results = read_results(plan, records)
    shown = [row for row in plan.settings if any(r.records for r in results[row.name])]
    waiting = [row.title for row in plan.settings if row not in shown]
    flags = " ".join([f"--plan={source}", *(f"--plugin={name}" for name in plugins)])
    about = _ABOUT.format(source=source, flags=flags, folder=folder, reference=REFERENCE)
    parts = [f"# {plan.title}", "What was compared, and how, stands [below](#protocol)."]
    if waiting:
        parts.append(f"Not run yet: {'; '.join(waiting)}.")
    if shown:
        parts += [
            "## What is reached with which memory",
            _memory_table(shown, results, records),
            "Joint training learns all tasks at once, in one pass: what a memory of everything "
            "would come near to.",
            *pair_sections(plan, results),
            *measures_sections(plan, results),
        ]
    for row in shown:
        parts += _section(plan, row, results[row.name], costs.get(row.name, {}))
    parts += ["## Protocol", plan.text, textwrap.fill(about, 100)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def picture_name(plan: Plan, shown: str) -> str:
    """Name of the file of a picture, in the page's folder `images`.

    Args:
        plan: The plan.
        shown: Name of the setting, or "winner".
    """
    return f"{plan.folder.resolve().name}_{shown}.png"


def _section(
    plan: Plan, setting: StudySetting, results: Sequence[Result], costs: Mapping[str, float]
) -> list[str]:
    flags = " ".join(f"`--{name}={value}`" for name, value in setting.flags.items())
    return [
        f"## {setting.title}",
        flags,
        f"![{_describe(results)}](images/{picture_name(plan, setting.name)})",
        markdown_table(
            ("system", "tuned", *_NUMBERS), [_row(result, costs) for result in results], _NUMBERS
        ),
        *(f"{r.title}: {r.refusal}." for r in results if r.refusal),
        *(
            f"{r.title} has no averaged weights: it {r.averaging_refusal}."
            for r in results
            if r.averaging_refusal and not r.refusal
        ),
    ]


def _row(result: Result, costs: Mapping[str, float]) -> list[str]:
    kinds = ("", "averaged_") if result.averaged else ("",)
    cells = [
        mean_std(result.records, f"{kind}{name}", scale, digits) if result.records else "-"
        for kind in kinds
        for name, scale, digits in _PLAIN
    ]
    missing = len(result.cell.seeds) - len(result.records)
    seeds = f"{len(result.records)} of {len(result.cell.seeds)}" if missing else len(result.records)
    cost = costs.get(result.cell.system.name)
    return [
        result.title,
        ", ".join(f"{name} {value}" for name, value in result.tuned.items()) or "-",
        *cells,
        *["-"] * (4 - len(cells)),
        "-" if result.refusal else str(seeds),
        "-" if cost is None else f"{cost:.1f}",
    ]


def _describe(results: Sequence[Result]) -> str:
    """The picture in words: each system's accuracy and forgetting, rounded as in the table."""
    points = []
    for r in results:
        if r.records:
            accuracy, forgetting = (
                mean_std(r.records, *number).partition(" ")[0] for number in _PLAIN
            )
            points.append(f"{r.title} {accuracy} % and {forgetting}")
    return f"Accuracy against forgetting: {', '.join(points)}"


def _memory_table(
    settings: Sequence[StudySetting],
    results: Mapping[str, Sequence[Result]],
    records: Sequence[Mapping[str, Any]],
) -> str:
    rows = []
    for setting in settings:
        best, kind = max(_kinds(results[setting.name]), key=_accuracy)
        joint = joint_training(best, records)
        waiting = any(not row.records and not row.refusal for row in results[setting.name])
        rows.append(
            (
                setting.title + (" (not all systems have run)" if waiting else ""),
                or_dash(best.memory),
                best.title + (", averaged weights" if kind else ""),
                mean_std(best.records, f"{kind}average_accuracy", 100, 1),
                mean_std(best.records, f"{kind}forgetting", 1, 3),
                mean_std(joint, "average_accuracy", 100, 1) if joint else "-",
            )
        )
    names = ("setting", "memory", "best system", "accuracy %", "forgetting", "joint training %")
    return markdown_table(names, rows, (names[1], *names[3:]))


def _kinds(results: Sequence[Result]) -> Iterator[tuple[Result, str]]:
    """Each result with the prefix of its figures: of its weights, and of their average."""
    for result in results:
        if result.records:
            yield result, ""
        if result.averaged:
            yield result, "averaged_"


def _accuracy(row: tuple[Result, str]) -> float:
    result, kind = row
    return result.mean_std(f"{kind}average_accuracy")[0]
