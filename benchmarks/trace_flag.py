"""What a flag passes on its way from the command line to the training of a seed.

python -m benchmarks.trace_flag [--flag=value ...]

It runs `run.py` with these flags, --learning_rate=0.1 by default, up to the call of `train_seed`,
and counts the calls of functions of the package by file, from the one that gets the words on. What
runs while a module is imported does not count, nor do comprehensions and the bodies of classes.
"""

import collections
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PROGRAM = ROOT / "run.py"
(_FOLDER,) = find_spec("nccl_tf").submodule_search_locations  # type: ignore[union-attr,misc]
PACKAGE = f"{_FOLDER}{os.sep}"
"""Of the package that is imported, which may be a wheel's; to find it imports nothing of it."""
BEGIN, END = ("cli.py", "main"), "train_seed"


class _Arrived(BaseException):
    """The call of `train_seed`, which no handler of the command takes for an error."""


def trace(words: Sequence[str]) -> collections.Counter[tuple[str, str]]:
    """Calls of each function by its file and its qualified name, in the order of the first ones.

    Args:
        words: Flags of the command `train`, of a run that is made in this process.

    Raises:
        RuntimeError: The command ended before it came to a run.
    """
    calls: collections.Counter[tuple[str, str]] = collections.Counter()
    importing = 0  # modules whose bodies are running

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename != str(PROGRAM):
            importing += {"call": 1, "return": -1}.get(event, 0)
        if event != "call" or importing or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name == END:
            raise _Arrived
        name = code.co_qualname
        key = code.co_filename.removeprefix(PACKAGE), name
        if not calls and key != BEGIN:  # the process is being set up
            return
        if code.co_flags & CO_OPTIMIZED and not name.endswith(("comp>", "<genexpr>")):
            calls[key] += 1

    before, sys.argv = sys.argv, [str(PROGRAM), *words]
    sys.setprofile(note)
    try:
        runpy.run_path(str(PROGRAM), run_name="__main__")
    except _Arrived:
        return calls
    except SystemExit as end:
        raise RuntimeError(f"the command ended with {end.code} before a run began") from None
    finally:
        sys.setprofile(None)
        sys.argv = before
    raise RuntimeError("the command ended before a run began")


def main() -> None:
    """Trace and print."""
    calls = trace(sys.argv[1:] or ["--learning_rate=0.1"])
    files: dict[str, list[str]] = {}
    for (file, function), count in calls.items():
        files.setdefault(file, []).append(f"{function} {count}")
    for file, functions in files.items():
        print(f"{file}: {', '.join(functions)}")
    print(f"{calls.total()} calls in {len(files)} files")


if __name__ == "__main__":
    main()
