"""The command: reads flags, runs a command, and turns bad input into one sentence and exit 2."""

import io
import os
import sys
from typing import Any, NoReturn

from absl import flags, logging

from nccl_tf import __version__
from nccl_tf.commands._command_line import (
    COMMANDS,
    check_flags,
    check_plugin_flags,
    check_word,
    named_command,
    named_method,
    parse,
    plugin_names,
)
from nccl_tf.commands._help import help_text, method_help
from nccl_tf.commands._output import program_name, warn_left_out
from nccl_tf.errors import LearningFailedError, UserError, checked_name, format_error
from nccl_tf.experiment.config.resolve import leave_out
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.extensions.plugins import load_plugins
from nccl_tf.methods.registry import METHODS
from nccl_tf.standard_streams import lost_output

_KEEP = ("train", "sweep")
"""Commands that keep their results in files."""
_HELP = ("--help", "-help", "-h", "--helpshort")
_HELP_FULL = ("--helpfull", "-helpfull")


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 `--strict` found a difference, or the
    process of a seed broke, 2 bad input, 3 learning that failed, 130 or 143 a signal.

    Args:
        argv: Name of the program, flags and words; those of the process by default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A folder's name, or a ±, must not end a run on a terminal that cannot show it.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Not by absl's app.run, whose debugger takes a tenth of the time of a finished run to import.
    logging.use_absl_handler()
    sys.exit(_run(*_parse(sys.argv if argv is None else argv)))


def _parse(argv: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The words that are no flags, and the values of the flags by name."""
    try:
        _set_backends()
        plugins = plugin_names(argv)
        if plugins:
            load_plugins(plugins)
        if asked := _asked_text(argv):
            print(asked)
            sys.exit(_told(0))
        # absl's own flags, a debugger and a profiler among them, are no flags of this command.
        flags.FLAGS.mark_as_parsed()
        words, flag_values, in_files = parse(argv)
        check_plugin_flags(flag_values, plugins)
        if in_files:
            given, flag_values = flag_values, leave_out(flag_values, in_files)
            warn_left_out(given, flag_values, "of the flag files")
    except UserError as error:
        _fail(error)
    return words, flag_values


def _asked_text(argv: list[str]) -> str | None:
    """Text to print instead of running a command (help, version), or None."""
    words = argv[1:]
    if not {*_HELP, *_HELP_FULL}.isdisjoint(words):
        program = program_name(argv[0])
        if named := named_method(words):
            return method_help(named, program=program)
        command, full = named_command(words), not set(_HELP_FULL).isdisjoint(words)
        return help_text(
            command or (COMMANDS["train"] if full else None), full=full, program=program
        )
    if "--version" in words:
        return f"nccl_tf {__version__}"
    return None


def _set_backends() -> None:
    """Have Keras run on TensorFlow, and matplotlib draw into files.

    Raises:
        UserError: Keras is asked for another backend.
    """
    backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        raise UserError(
            f"KERAS_BACKEND is {backend!r}, expected tensorflow: unset it for this command"
        )
    os.environ["MPLBACKEND"] = "agg"


def _run(words: list[str], flag_values: dict[str, Any]) -> int:
    # TensorFlow Datasets tells every file it opens.
    logging.set_verbosity(logging.WARNING)
    try:
        if len(words) > 1:
            raise UserError(
                f"received the words {' '.join(words)}: expected one command, "
                f"one of {', '.join(COMMANDS)}; flags start with --, lists are a,b without blanks"
            )
        if words and words[0] in METHODS:
            raise UserError(
                f"received the method {words[0]} as a command: run it with --method={words[0]}"
            )
        for word in words:
            check_word(word, flag_values)
        name = checked_name("command", words[0] if words else "train", COMMANDS)
        command = COMMANDS[name]
        check_flags(command, flag_values)
        code = command.run(flag_values)
        return _told(code, keeps=name in _KEEP and not flag_values["dry_run"])
    except Interrupted as interrupted:
        print(f"{interrupted}; rerun the same command to resume", file=sys.stderr)
        return interrupted.exit_code
    except (UserError, LearningFailedError) as error:
        _fail(error)


def _told(code: int, keeps: bool = False) -> int:
    """The exit code of a command, once it is seen whether what it printed could be written.

    Args:
        code: The command's own.
        keeps: Whether it keeps its results in files, so that it is done without what it prints.
    """
    if (reason := lost_output()) is None:
        return code
    what = "the files of this run are whole" if keeps else "run the command again"
    print(f"error: cannot write standard output ({reason}): make room; {what}", file=sys.stderr)
    return code or (0 if keeps else UserError.exit_code)


def _fail(error: UserError | LearningFailedError) -> NoReturn:
    print(format_error(error), file=sys.stderr)
    sys.exit(error.exit_code)
