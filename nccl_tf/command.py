"""The command: reads flags, runs a command, and turns bad input into one sentence and exit 2."""

import os
import sys
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from nccl_tf.errors import UserError, check_name
from nccl_tf.experiment.flags import define_flags, flag_values, parse_flags
from nccl_tf.experiment.help import help_text
from nccl_tf.experiment.options import Options, resolve_options
from nccl_tf.experiment.resolve import resolve
from nccl_tf.experiment.settings import Settings

_HELP = ("--help", "-help", "-h", "--helpshort", "--helpfull")


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 `tables --check` found a difference, 2 bad input.

    Args:
        argv: Name of the program, flags and words; those of the process by default.
    """
    app.run(_run, argv=argv, flags_parser=_parse)


def _parse(argv: list[str]) -> list[str]:
    if any(word in _HELP for word in argv[1:]):
        print(help_text())
        sys.exit(0)
    define_flags(flags.FLAGS)
    try:
        return parse_flags(flags.FLAGS, argv)
    except UserError as error:
        _fail(error)


def _run(words: list[str]) -> int:
    if flags.FLAGS.verbosity == logging.INFO:
        # TensorFlow Datasets tells every file it opens.
        logging.set_verbosity(logging.WARNING)
    try:
        commands = {"train": train, "tables": tables}
        if len(words) > 1:
            raise UserError(
                f"received the words {' '.join(words)}: expected one command, "
                f"{' or '.join(commands)}; flags start with --, lists are a,b without blanks"
            )
        name = check_name("command", words[0] if words else "train", commands)
        given = flag_values(flags.FLAGS)
        for other, owner in (("readme", "tables"), ("check", "tables")):
            if given[other] is not None and name != owner:
                raise UserError(f"--{other} belongs to the command {owner}: leave it out")
        return commands[name](given)
    except UserError as error:
        _fail(error)


def _fail(error: UserError) -> None:
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(2)


def train(given: dict[str, Any]) -> int:
    """Train every seed that is not finished, and print and draw what came out.

    Raises:
        UserError: A setting is bad, data are missing, or the output folder cannot be written.
    """
    settings, options = resolve(given), resolve_options(given)
    from nccl_tf.reports.text import run_summary, seeds_summary

    records = []
    for seed in options.seeds:
        record, files = _seed(settings, options, seed)
        records.append(record)
        print("\n".join(["", run_summary(record), *(f"see {path}" for path in files)]))
    if len(records) > 1:
        print("\n" + seeds_summary(records))
    return 0


def _seed(settings: Settings, options: Options, seed: int) -> tuple[dict[str, Any], list[Path]]:
    from nccl_tf.experiment.records import FILE_NAME, read_record, run_folder, write_record
    from nccl_tf.reports.figures import save_figures

    folder = run_folder(settings, options.output_dir, seed)
    result = folder / FILE_NAME
    if result.exists() and not options.overwrite:
        record = read_record(result)
        print(f"finished already (--overwrite runs it again): {result}")
        return record, sorted(folder.glob("*.png"))
    _make_folder(folder)
    print(
        f"{settings.method} on {settings.dataset} ({settings.head}-head), seed {seed}, "
        f"learning rate {settings.learning_rate:g}\n{settings.num_tasks} tasks: "
        f"{settings.tuning_tasks} held out for tuning, {settings.evaluated_tasks} for evaluation, "
        f"{settings.max_tasks} of them run",
        flush=True,
    )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from nccl_tf.experiment.runner import run_seed

    record = run_seed(settings, options, seed, folder)
    pictures = save_figures(record, folder)
    files = [write_record(record, folder), folder / "steps.csv", *pictures]
    return record, files


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"cannot write into {folder} ({error.strerror}): choose another --output_dir"
        ) from error


def tables(given: dict[str, Any]) -> int:
    """Print the table of finished runs, or put it into a README.

    Returns:
        1 if `--check` finds another table in the README, else 0.

    Raises:
        UserError: There are no records, one is broken, or the README lacks its marks.
    """
    from nccl_tf.reports.tables import read_records, results_table, update_readme

    folder = Path(resolve_options(given).output_dir)
    table = results_table(read_records(folder))
    if given["readme"] is None:
        if given["check"]:
            raise UserError("--check compares a file: give --readme=README.md too")
        print(table, end="")
        return 0
    path, check = Path(given["readme"]), bool(given["check"])
    current = update_readme(path, table, check=check)
    if check and not current:
        print(f"{path} differs from the table of {folder}: run again without --check")
        return 1
    print(f"{path}: {'is up to date' if current else 'table replaced'}")
    return 0
