"""The command `study`: systems compared under one protocol, as a plan fixes it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.commands._output import print_file_status, warn_skipped_records
from nccl_tf.commands.sweep import ranking_table
from nccl_tf.errors import UserError, translate_os_error
from nccl_tf.experiment.config.options import Options, resolve_options
from nccl_tf.experiment.study.missing import run_missing
from nccl_tf.experiment.study.plan import Plan
from nccl_tf.experiment.study.plan_file import read_plan
from nccl_tf.reports.costs import FILE_NAME as COSTS
from nccl_tf.reports.costs import read_costs
from nccl_tf.reports.generated_files import put_between_marks, put_text, read_text
from nccl_tf.reports.record_lines import record_key
from nccl_tf.reports.records import find_records
from nccl_tf.reports.study.page import picture_name, study_page
from nccl_tf.reports.study.results import read_results
from nccl_tf.reports.study.winner import winner_table
from nccl_tf.reports.table import as_markdown

_PUBLISHED = "results"


def run(flag_values: Mapping[str, Any]) -> int:
    """Run what a plan lacks, or make its pages and pictures from the records.

    Returns:
        1 if `--check` finds another page or table in a file, else 0.

    Raises:
        UserError: The plan is bad, a run was refused, or a file cannot be read or written.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    options = resolve_options(flag_values)
    if flag_values["plan"] is None:
        raise UserError("study needs a plan: give --plan=flags/comparison/plan.toml")
    plan = read_plan(Path(flag_values["plan"]))
    if flag_values["run_missing"]:
        _run_missing(plan, flag_values, options)
        return 0
    return _show(plan, flag_values, options)


def _run_missing(plan: Plan, flag_values: Mapping[str, Any], options: Options) -> None:
    for name in ("docs", "readme", "figure_dir"):
        if flag_values[name] is not None:
            raise UserError(
                f"--run_missing makes runs, and no page: leave --{name} out, and publish the runs "
                "first"
            )
    cells = plan.cells(flag_values["setting"], flag_values["system"])
    records, broken = _records(flag_values, options)
    warn_skipped_records(broken, len(records))
    run_missing(
        cells,
        {record_key(record) for record in records},
        flag_values,
        options,
        lambda line: print(line, flush=True),
        lambda ranking: as_markdown(ranking_table(ranking)),
    )


def _records(
    flag_values: Mapping[str, Any], options: Options
) -> tuple[list[dict[str, Any]], list[str]]:
    """The records below --output_dir and --publish_dir, and what is wrong with broken ones.

    Of a run that has a record below both, that below --output_dir is taken.
    """
    folders = dict.fromkeys((flag_values["publish_dir"] or _PUBLISHED, options.output_dir))
    found = [find_records(Path(folder)) for folder in folders]
    by_key = {record_key(record): record for records, _ in found for record in records}
    return list(by_key.values()), [problem for _, broken in found for problem in broken]


def _show(plan: Plan, flag_values: Mapping[str, Any], options: Options) -> int:
    check, readme, docs = (flag_values[name] for name in ("check", "readme", "docs"))
    if check and readme is None and docs is None:
        raise UserError("--check compares a file: give --docs=docs/comparison.md too")
    if check and flag_values["figure_dir"] is not None:
        raise UserError("--check writes nothing, and compares no picture: leave --figure_dir out")
    records, broken = _records(flag_values, options)
    warn_skipped_records(broken, len(records))
    if flag_values["figure_dir"] is not None:
        _draw(plan, records, Path(flag_values["figure_dir"]))
    written = {}
    if readme is not None:
        table = winner_table(plan, read_results(plan, records))
        written[readme] = put_between_marks(Path(readme), "winner", table, check=check)
    if readme is None or docs is not None:
        costs = read_costs(plan.folder / COSTS)
        where = flag_values["plan"], options.plugin, options.output_dir
        page = study_page(plan, records, costs, *where)
        if docs is not None:
            current = read_text(Path(docs), "--docs") if os.path.exists(docs) else None
            written[docs] = put_text(Path(docs), current, page, flag="--docs", check=check)
        elif flag_values["figure_dir"] is None:
            print(page, end="")
    codes = [print_file_status(Path(name), now, check) for name, now in written.items()]
    return max(codes, default=0)


def _draw(plan: Plan, records: list[dict[str, Any]], folder: Path) -> None:
    from nccl_tf.reports.figures.style import paper_style, save
    from nccl_tf.reports.study.picture import study_figure, winner_figure

    results = read_results(plan, records)
    names = [system.name for system in plan.systems]
    figures = {
        picture_name(plan, setting.name): study_figure(results[setting.name], names)
        for setting in plan.settings
        if any(result.records for result in results[setting.name])
    }
    if plan.winner:
        figures[picture_name(plan, "winner")] = winner_figure(plan, results)
    for name, figure in figures.items():
        with translate_os_error(f"into {folder}", "choose another --figure_dir"), paper_style():
            for path in save(figure, folder, Path(name).stem, dpi=150):
                print(f"see {path}")
