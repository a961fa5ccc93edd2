"""The pages that show the records of `results`: README.md, docs/results.md, docs/results/ and
docs/theory.md.

`python -m docs.make.results` writes them between their marks, and with `--check` compares them.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from docs.make.generated_files import print_file_status, put_between_marks
from docs.make.parity_pages import put_nccl, put_parity
from nccl_tf.commands.paper.parity import select_cells
from nccl_tf.errors import UserError, format_error
from nccl_tf.records.record import Record
from nccl_tf.reports.figures.bound import bound_table
from nccl_tf.reports.records import Records
from nccl_tf.reports.table import Table, as_markdown, titled_markdown
from nccl_tf.reports.tables import results_by_stream

ROOT = Path(__file__).parents[2]
TIMED = Path("studies", "training_times", "records")
"""Published runs that were made again, in turns, to be timed."""
IN_README = ("8f6c8e87", "257459b3", "d5d79541", "a3c5917f", "526f8f09", "0e350dda")
"""How the hashes begin of the settings that README shows."""
_SHOWN = ("method", "accuracy %", "forgetting")


def put_results(
    root: Path, records: Sequence[Record], timed: Sequence[Record] = (), *, check: bool
) -> dict[Path, bool]:
    """Put what the records say into every page that shows it.

    Args:
        root: Folder of README.md and docs.
        records: Of finished runs.
        timed: Of runs for their times alone.
        check: Change nothing.

    Returns:
        Of each page whether it was up to date.

    Raises:
        UserError: No record has settings that README shows, or a page cannot be read or written,
            or lacks its marks.
    """
    readme, every = root / "README.md", root / "docs" / "results.md"
    shown = readme_table(records, IN_README)
    cells, compared = select_cells(None), [*records, *timed]
    current = {readme: put_between_marks(readme, "results", shown, check=check)}
    if put_nccl(readme, cells, compared, check=check) is False:
        current[readme] = False
    page = titled_markdown(results_by_stream(records))
    current[every] = put_between_marks(every, "results", page, check=check)
    theory = root / "docs" / "theory.md"
    measured = [record for record in records if record.dataset == "permuted_mnist"]
    table = as_markdown(bound_table(measured))
    current[theory] = put_between_marks(theory, "bound", table, check=check)
    return current | put_parity(root / "docs" / "results", cells, compared, check=check)


def readme_table(records: Sequence[Record], hashes: Sequence[str]) -> str:
    """Methods, accuracy and forgetting of some settings, in Markdown.

    Args:
        records: Of finished runs.
        hashes: How the hashes of the settings begin.

    Raises:
        UserError: No record has one of them.
    """
    for start in hashes:
        if not any(record.settings_hash.startswith(start) for record in records):
            raise UserError(
                f"no record has settings whose hash begins with {start}: name others in IN_README"
            )
    chosen = [r for r in records if r.settings_hash.startswith(tuple(hashes))]
    return "\n".join(as_markdown(_shortened(table)) for table in results_by_stream(chosen))


def _shortened(table: Table) -> Table:
    """The columns `_SHOWN` alone: the page says what the settings have in common."""
    places = [table.names.index(name) for name in _SHOWN]
    rows = tuple(tuple(row[place] for place in places) for row in table.rows)
    return Table(table.name, table.title, _SHOWN, rows, _SHOWN[1:])


def main() -> int:
    """Write the pages; 1 if `--check` finds others."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if one differs")
    check = parser.parse_args().check
    try:
        found, timed = (Records.required(ROOT / name) for name in ("results", TIMED))
        for problem in (*found.broken, *timed.broken):
            raise UserError(problem)
        current = put_results(ROOT, found.records, timed.records, check=check)
    except UserError as error:
        print(format_error(error), file=sys.stderr)
        return error.exit_code
    return max(print_file_status(path, same, check) for path, same in current.items())


if __name__ == "__main__":
    sys.exit(main())
