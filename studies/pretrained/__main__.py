"""Methods on two real pretrained networks, as plan.toml says.

python -m studies.pretrained --features [--wheels=DIR] [--cache=DIR] [--data_dir=DIR]
python -m studies.pretrained --run_missing [--network=NAME] [--system=NAME] [--passes=N]
python -m studies.pretrained --run_blocks
python -m studies.pretrained [--check] [--figures]

The first computes features once, of images by the networks in two wheels. The second makes the
runs on features that `results.jsonl` lacks, the third those in which the last blocks of DINOv2
learn; both keep each result as it comes and may be stopped at any time, and processes
with the same command share the runs. The last makes tables and picture of the results.
"""

import argparse
import functools
import sys
from pathlib import Path

import tensorflow as tf

from docs.make.generated_files import print_file_status, put_between_marks
from nccl_tf.errors import UserError, format_error
from studies.pretrained import blocks, features, runs
from studies.pretrained.features import Cut, Features, file_of
from studies.pretrained.runs import HERE, NETWORKS, PLAN, RESULTS, Cell, Results, Row

IMAGES, PICTURE = HERE.parents[1] / "docs" / "images", "pretrained"


def cuts() -> list[Cut]:
    """The images of the plan, those that are evaluated first."""
    return [
        Cut(**{name: part[name] for name in ("dataset", "train", "test")})
        for part in (PLAN["evaluated"], PLAN["tuning"])
    ]


def run_missing(asked: argparse.Namespace) -> int:
    """Tune what is not tuned, and make the runs on features that have no result.

    Returns:
        How many runs failed.

    Raises:
        UserError: Features have not been made.
    """
    cache = Path(asked.cache)

    @functools.cache
    def parts_of(path: Path) -> dict[str, Features]:
        return features.load(path)

    def path_of(cell: Cell, name: str) -> Path:
        return file_of(cache, cell.network, PLAN[name]["dataset"])

    def wanted(results: Results) -> list[runs.Wanted]:
        # Others wait for features, which another process may be making.
        found = runs.missing(results, vars(asked))
        return [each for each in found if path_of(each.cell, each.part).exists()]

    def make(each: runs.Wanted) -> Row:
        return runs.run(
            each.cell.system, parts_of(path_of(each.cell, each.part)), PLAN[each.part], each.key
        )

    failed = runs.make_missing(wanted, make, _files(asked), _claims(asked))
    for each in runs.missing(Results(_files(asked)), vars(asked)):
        parts_of(path_of(each.cell, each.part))
    return failed


def run_blocks(asked: argparse.Namespace) -> int:
    """Make the runs in which blocks learn; returns how many failed.

    Raises:
        UserError: The wheel or the images are not there.
    """

    @functools.cache
    def made() -> blocks.Blocks:
        return blocks.Blocks(Path(asked.cache), Path(asked.wheels), cuts()[0], asked.data_dir)

    def make(each: runs.Wanted) -> Row:
        return made().run(each.cell, each.key)

    return runs.make_missing(blocks.missing, make, _files(asked), _claims(asked))


def _files(asked: argparse.Namespace) -> list[Path]:
    return [Path(asked.results), RESULTS]


def _claims(asked: argparse.Namespace) -> Path:
    return Path(asked.cache) / "claims"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 if the page is not as made")
    parser.add_argument("--figures", action="store_true", help="draw the picture too")
    parser.add_argument("--features", action="store_true", help="compute what the cache lacks")
    parser.add_argument("--run_missing", action="store_true", help="make what has no result")
    parser.add_argument("--run_blocks", action="store_true", help="and runs where blocks learn")
    parser.add_argument("--network", choices=NETWORKS, help="of --run_missing: this one alone")
    parser.add_argument("--passes", type=int, help="of --run_missing: so many alone")
    parser.add_argument("--system", help="of --run_missing: this one of the plan alone")
    parser.add_argument("--results", default=RESULTS, help="file that takes new results")
    parser.add_argument("--wheels", default="runs/pretrained", help="folder of the wheels")
    parser.add_argument("--cache", default="runs/pretrained", help="folder of the features")
    parser.add_argument("--data_dir", help="folder of TensorFlow Datasets")
    parser.add_argument("--threads", type=int, default=1, help="of an operation")
    asked = parser.parse_args()
    if not (asked.features or asked.run_missing or asked.run_blocks):
        # Needs matplotlib, which a machine for runs may lack.
        from studies.pretrained import page

        results = Results(_files(asked))
        if asked.figures:
            page.draw(results, IMAGES, PICTURE)
        codes = [
            print_file_status(
                path,
                put_between_marks(path, name, made(results), check=asked.check),
                check=asked.check,
            )
            for path, name, made in page.PARTS
        ]
        sys.exit(max(codes))
    for which in ("intra", "inter"):
        getattr(tf.config.threading, f"set_{which}_op_parallelism_threads")(asked.threads)
    try:
        failed = 0
        if asked.features:
            # A GPU would round products to 10 bits.
            tf.config.experimental.enable_tensor_float_32_execution(False)
            features.make_all(Path(asked.cache), Path(asked.wheels), cuts(), asked.data_dir)
        if asked.run_missing:
            failed += run_missing(asked)
        if asked.run_blocks:
            failed += run_blocks(asked)
        sys.exit(failed > 0)
    except UserError as error:
        print(format_error(error), file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
