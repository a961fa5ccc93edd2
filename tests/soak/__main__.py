"""The command: `python -m tests.soak --help`."""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.soak.processes import preload

WHOLE_PROCESSES_EVERY = 24


def main() -> int:
    """Run cases or command lines, and return 1 where something is wrong, else 0."""
    arguments = _parse()
    os.nice(10)
    # So that the file system is unmounted.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    preload()
    from tests.soak import command_lines

    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with _scratch() as (disk, logs, has_disk), arguments.output.open("a") as file:

        def write(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=file, flush=True)

        print("a disk to fill" if has_disk else "no disk to fill: it cannot be mounted", flush=True)
        if arguments.command_lines:
            return command_lines.run(arguments.command_lines, arguments.seed, disk, logs, write)
        return _soak(arguments, disk, logs, has_disk, write)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=sys.modules["tests.soak"].__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--cases", type=int, default=10**9, help="so many at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--command_lines", type=int, default=0, help="so many that train")
    parser.add_argument("--output", type=Path, default=Path("build/soak.jsonl"))
    return parser.parse_args()


def _soak(arguments: argparse.Namespace, disk: Path, logs: Path, has_disk: bool, write: Any) -> int:
    from tests.soak.case import Case, clean

    begin, kinds = time.monotonic(), collections.Counter[str]()
    runs = wrong = cases = 0
    numbers = [arguments.case] if arguments.case is not None else range(arguments.first, 10**9)
    for number in numbers:
        if cases >= arguments.cases or time.monotonic() - begin > 60 * arguments.minutes:
            break
        is_whole = number % WHOLE_PROCESSES_EVERY == WHOLE_PROCESSES_EVERY - 1
        case = Case(arguments.seed, number, disk, logs, has_disk, is_whole)
        try:
            case.run()
        except Exception as error:
            case.problems.append(repr(error))
        clean(disk)
        write(case.as_json())
        cases, runs, wrong = cases + 1, runs + case.runs, wrong + bool(case.problems)
        kinds.update(case.faults)
        print(
            f"case {number}: {case.flags['method']} on {case.flags['dataset']}, {case.runs} runs: "
            + ", ".join(case.faults), *case.problems, sep="\n  DIFFERS: ", flush=True,
        )  # fmt: skip
    counts = {
        "seed": arguments.seed, "cases": cases, "runs": runs, "faults": kinds.total(),
        "differences": wrong, "kinds": dict(kinds.most_common()),
        "minutes": round((time.monotonic() - begin) / 60, 1),
    }  # fmt: skip
    write(counts)
    print(json.dumps(counts, indent=1))
    return 1 if wrong else 0


@contextmanager
def _scratch() -> Iterator[tuple[Path, Path, bool]]:
    """A small file system, or a folder where none can be mounted, and a folder for logs."""
    with tempfile.TemporaryDirectory(prefix="soak") as folder:
        disk, logs = Path(folder, "disk"), Path(folder, "logs")
        disk.mkdir()
        logs.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=32m,nr_inodes=500", "tmpfs", str(disk)]
        try:
            has_disk = subprocess.run(mount, capture_output=True).returncode == 0
        except FileNotFoundError:
            has_disk = False
        try:
            yield disk, logs, has_disk
        finally:
            if has_disk:
                subprocess.run(["umount", "--lazy", str(disk)], check=True)


if __name__ == "__main__":
    sys.exit(main())
