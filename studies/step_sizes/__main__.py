"""Step sizes after NCCL: the table of README.md of the records beside it.

python -m studies.step_sizes [--check] [--run_missing --workers=2 ...]
"""

import argparse
from collections.abc import Sequence

import numpy as np

from docs.make.generated_files import print_file_status, put_between_marks
from nccl_tf.records.spread import spread
from nccl_tf.reports.table import markdown_table
from studies.study import ROOT, Record, Result, Study, main

_FOLDER = ROOT / "studies" / "step_sizes"
STUDY = Study(_FOLDER, (_FOLDER / "records", ROOT / "results"), (str(_FOLDER / "rules.py"),))
PAGE = _FOLDER / "README.md"
BESIDE = "er_reservoir"
_FEW = 3


def compare(first: Result, second: Result) -> str:
    """Two systems in pairs by seed, with the averaged weights where both have them.

    Returns:
        The verdict on the first, then its accuracy in points and its forgetting less the other's,
        each ± one standard error; "-" with fewer than two seeds in common.
    """
    kind = "averaged_" if first.averaged and second.averaged else ""
    ours, others = (
        dict(zip((r.seed for r in result.records), result.metrics(kind), strict=True))
        if result.records
        else {}
        for result in (first, second)
    )
    pairs = [ours[seed] - others[seed] for seed in ours if seed in others]
    if len(pairs) < 2:
        return "-"
    gained = spread(pairs)
    gains, errors = gained.mean, gained.error
    mark = "*" if len(pairs) <= _FEW else ""
    points, lost = round(gains[0], 1) + 0.0, round(gains[1], 3) + 0.0  # No -0.0.
    points_error, lost_error = errors
    return (
        f"{verdict(gains * (1, -1), errors)}{mark}: {points:+.1f} ± {points_error:.1f}, "
        f"{lost:+.3f} ± {lost_error:.3f}"
    )


def verdict(gains: np.ndarray, errors: np.ndarray) -> str:
    """One word for gains of accuracy and of forgetting, each in its unit.

    `better` if none is below -1 standard error and one is above 2, `worse` likewise; `mixed` if one
    is above 2 and another below -2; `level` in between.
    """
    for name, sign in (("better", 1), ("worse", -1)):
        if (sign * gains >= -errors).all() and (sign * gains > 2 * errors).any():
            return name
    is_mixed = (gains > 2 * errors).any() and (gains < -2 * errors).any()
    return "mixed" if is_mixed else "level"


def table(study: Study, records: Sequence[Record]) -> str:
    """Every system beside plain replay, a column for each setting that has run."""
    results = {title: rows for title, rows in study.results(records).items() if rows[0].records}
    by_name = {
        title: {row.cell.system["name"]: row for row in rows} for title, rows in results.items()
    }
    rows = []
    for system in study.plan["systems"]:
        found = [names[system["name"]] for names in by_name.values()]
        if system["name"] != BESIDE and any(row.records for row in found):
            beside = [names[BESIDE] for names in by_name.values()]
            cells = [compare(row, other) for row, other in zip(found, beside, strict=True)]
            rows.append((found[0].cell.title, *cells))
    return markdown_table(("beside ER-Reservoir", *results), rows)


def show(asked: argparse.Namespace, records: Sequence[Record]) -> int:
    """Write the table; 1 if `--check` finds another."""
    content = table(STUDY, records)
    before = put_between_marks(PAGE, "table", content, check=asked.check)
    return print_file_status(PAGE, before, asked.check)


if __name__ == "__main__":
    main(STUDY, show, __doc__)
