"""The command: reads flags, runs a command, and turns bad input into one sentence and exit 2."""

import io
import os
import sys
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from nccl_tf.errors import UserError, check_name
from nccl_tf.experiment.flags import define_flags, flag_values, parse_flags
from nccl_tf.experiment.help import help_text
from nccl_tf.experiment.interrupts import Interrupted, InterruptRequest, interrupt_requests
from nccl_tf.experiment.lock import locked
from nccl_tf.experiment.options import Options, resolve_options
from nccl_tf.experiment.resolve import resolve
from nccl_tf.experiment.run_file import settings_to_resume, write_run_file
from nccl_tf.experiment.settings import Settings

_OWNERS = {
    "readme": ("tables",), "docs": ("methods",), "check": ("tables", "methods"),
    "sweep": ("sweep",), "figure": ("figures",), "figure_dir": ("figures",),
}  # fmt: skip
_LONGEST = 1000
_HELP = ("--help", "-help", "-h", "--helpshort", "--helpfull")


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 `--check` found a difference, 2 bad input.

    Args:
        argv: Name of the program, flags and words; those of the process by default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A folder's name, or a ±, must not end a run on a terminal that cannot show it.
        sys.stdout.reconfigure(errors="backslashreplace")
    app.run(_run, argv=argv, flags_parser=_parse)


def _parse(argv: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The words that are no flags, and the values of the flags by name."""
    if any(word in _HELP for word in argv[1:]):
        print(help_text())
        sys.exit(0)
    # absl's own flags, a debugger and a profiler among them, are none of this command.
    values = flags.FlagValues()
    flags.FLAGS.mark_as_parsed()
    define_flags(values)
    try:
        return parse_flags(values, argv), flag_values(values)
    except UserError as error:
        _fail(error)


def _run(parsed: tuple[list[str], dict[str, Any]]) -> int:
    words, given = parsed
    # TensorFlow Datasets tells every file it opens.
    logging.set_verbosity(logging.WARNING)
    try:
        commands = {"train": train, "tables": tables, "methods": methods, "figures": figures}
        if len(words) > 1:
            raise UserError(
                f"received the words {' '.join(words)}: expected one command, "
                f"one of {', '.join(commands)}; flags start with --, lists are a,b without blanks"
            )
        name = check_name("command", words[0] if words else "train", commands)
        for other, owners in _OWNERS.items():
            if given[other] is not None and name not in owners:
                advice = (
                    "flag files of flags/grids are read by that command; for one run give the "
                    "flag itself a single value"
                    if other == "sweep"
                    else "leave it out"
                )
                raise UserError(f"--{other} belongs to the command {' or '.join(owners)}: {advice}")
        return commands[name](given)
    except UserError as error:
        _fail(error)


def _fail(error: UserError) -> None:
    sentence = " ".join(str(error).split())
    if len(sentence) > _LONGEST:
        half = _LONGEST // 2
        sentence = f"{sentence[:half]} [...] {sentence[-half:]}"
    # What was received is shown, but not given to the terminal to act on.
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence)
    print(f"error: {shown}", file=sys.stderr)
    sys.exit(2)


def train(given: dict[str, Any]) -> int:
    """Train every seed that is not finished, and print and draw what came out.

    Raises:
        UserError: A setting is bad, data are missing, or the output folder cannot be written.
    """
    from nccl_tf.experiment.records import run_folder

    options = resolve_options(given)
    if given["resume"] is None:
        settings, seeds = resolve(given), options.seeds
        folders = [run_folder(settings, options.output_dir, seed) for seed in seeds]
    else:
        folders = [Path(given["resume"])]
        settings, seed = settings_to_resume(folders[0], given)
        seeds = (seed,)
    from nccl_tf.reports.text import run_summary, seeds_summary

    records = []
    for seed, folder in zip(seeds, folders, strict=True):
        record, files = _seed(settings, options, seed, folder, given)
        records.append(record)
        print("\n".join(["", run_summary(record), *(f"see {path}" for path in files)]))
    if len(records) > 1:
        print("\n" + seeds_summary(records))
    return 0


def _seed(
    settings: Settings, options: Options, seed: int, folder: Path, given: dict[str, Any]
) -> tuple[dict[str, Any], list[Path]]:
    from nccl_tf.experiment.records import FILE_NAME, read_record, write_record

    result = folder / FILE_NAME
    # Not `result.exists()`, which raises for a name that is too long.
    if os.path.exists(result) and not options.overwrite:
        record = read_record(result)
        print(f"finished already (--overwrite runs it again): {result}")
        return record, sorted(folder.glob("*.png"))
    _make_folder(folder)
    with locked(folder), interrupt_requests() as request:
        write_run_file(folder, settings, seed, given)
        print(
            f"{settings.method} on {settings.dataset} ({settings.head}-head), seed {seed}, "
            f"learning rate {settings.learning_rate:g}\n{settings.num_tasks} tasks: "
            f"{settings.tuning_tasks} held out for tuning, {settings.evaluated_tasks} for "
            f"evaluation, {settings.max_tasks} of them run",
            flush=True,
        )
        record = _train_seed(settings, options, seed, folder, request)
        from nccl_tf.experiment.resume import clear_checkpoints
        from nccl_tf.reports.figures import save_figures

        pictures = save_figures(record, folder)
        files = [write_record(record, folder), folder / "steps.csv", *pictures]
        clear_checkpoints(folder)
    return record, files


def _train_seed(
    settings: Settings, options: Options, seed: int, folder: Path, request: InterruptRequest
) -> dict[str, Any]:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    from nccl_tf.experiment.resume import LearningFailedError
    from nccl_tf.experiment.runner import run_seed

    try:
        return run_seed(settings, options, seed, folder, request)
    except Interrupted as interrupted:
        print(f"{interrupted}; the same command, or --resume={folder}, goes on", file=sys.stderr)
        sys.exit(interrupted.exit_code)
    except (MemoryError, tf.errors.ResourceExhaustedError) as error:
        raise UserError(
            "this machine ran out of memory: lower --batch_size, the network's --hidden or the "
            "size of the replay memory"
        ) from error
    except LearningFailedError:
        print(
            "error: ten steps in a row had no finite loss and gradient, so the run has ended; its "
            f"last finite state is in {folder}: try a lower --learning_rate (it was "
            f"{settings.learning_rate:g})",
            file=sys.stderr,
        )
        sys.exit(3)


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
        UserError: There are no records that are whole, or the README lacks its marks. Broken ones
            are left out, and named on stderr.
    """
    from nccl_tf.reports.tables import read_records, results_table, update_readme

    folder = Path(resolve_options(given).output_dir)
    records, broken = read_records(folder)
    for sentence in broken:
        print(f"left out: {sentence}", file=sys.stderr)
    if broken:
        print(f"left out {len(broken)} broken of {len(records) + len(broken)}", file=sys.stderr)
    table = results_table(records)
    if given["readme"] is None:
        if given["check"]:
            raise UserError("--check compares a file: give --readme=README.md too")
        print(table, end="")
        return 0
    path, check = Path(given["readme"]), bool(given["check"])
    return _say(path, update_readme(path, table, check=check), check)


def methods(given: dict[str, Any]) -> int:
    """Print the page of the methods, or write it into a file.

    Returns:
        1 if `--check` finds another page in the file, else 0.

    Raises:
        UserError: The file cannot be read or written.
    """
    from nccl_tf.reports.markdown import put_text, read_text
    from nccl_tf.reports.methods_page import methods_page

    if given["docs"] is None:
        if given["check"]:
            raise UserError("--check compares a file: give --docs=docs/methods.md too")
        print(methods_page(), end="")
        return 0
    path, check = Path(given["docs"]), bool(given["check"])
    held = read_text(path, "--docs") if os.path.exists(path) else None
    return _say(path, put_text(path, held, methods_page(), flag="--docs", check=check), check)


def figures(given: dict[str, Any]) -> int:
    """Draw a picture from the records of finished runs.

    Raises:
        UserError: There are no fitting records, or a file cannot be written.
    """
    from nccl_tf.reports.figure_command import draw

    for path in draw(given, Path(resolve_options(given).output_dir)):
        print(f"see {path}")
    return 0


def _say(path: Path, current: bool, check: bool) -> int:
    if check and not current:
        print(f"{path} is not up to date: run again without --check")
        return 1
    print(f"{path}: {'is up to date' if current else 'written'}")
    return 0
