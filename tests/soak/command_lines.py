"""Random command lines, of which many train: they end with a code that is documented, and whole."""

import collections
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nccl_tf.errors import UserError
from nccl_tf.experiment.run.record import FILE_NAME, read_record
from nccl_tf.methods.registry import METHODS
from tests.soak.case import clean
from tests.soak.draw import Flags, as_words, draw_flags
from tests.soak.processes import Ended, run_forked

CODES = (0, 2, 3)
OPTIONS: dict[str, tuple] = {
    "deterministic": ("true", "false"), "steps_per_execution": (1, 4, 200),
    "record_every": (1, 20), "progress": ("plain", "json", "none", "bar"), "seeds": (0, 7),
    "network": ("mlp",), "threads": (1,),
}  # fmt: skip


def run(
    wanted: int, seed: int, disk: Path, logs: Path, write: Callable[[dict[str, Any]], None]
) -> int:
    """Run command lines, each method in turn, until so many have trained.

    Returns:
        1 where one did not end well, else 0.
    """
    codes, trained = collections.Counter[str](), collections.Counter[str]()
    number = wrong = 0
    while codes["0"] < wanted:
        random = np.random.default_rng((seed, number))
        words, ends = _draw(random, list(METHODS)[number % len(METHODS)]), []
        for more in ([], ["--overwrite"] if random.random() < 0.1 else []):
            if not ends or (more and ends[-1].code == 0):
                argv = [*words, f"--output_dir={disk / 'runs'}", *more]
                ends.append(run_forked(argv, logs))
        problems = [problem for ended in ends for problem in _problems(ended, disk)]
        clean(disk)
        line = {
            "seed": seed, "line": number, "words": " ".join(words), "problems": problems,
            "codes": [ended.code for ended in ends], "said": ends[-1].err[-300:],
        }  # fmt: skip
        write(line)
        if problems:
            print(json.dumps(line, indent=1), flush=True)
        codes.update(str(ended.code) for ended in ends)
        if ends[0].code == 0:
            trained.update(word for word in words if not word.startswith("--output_dir"))
        wrong, number = wrong + bool(problems), number + 1
    counts = {
        "seed": seed, "command_lines": number, "codes": dict(codes), "wrong": wrong,
        "trained": dict(sorted(trained.items())),
    }  # fmt: skip
    write(counts)
    print(json.dumps({**counts, "trained": len(trained)}))
    return 1 if wrong else 0


def _draw(random: np.random.Generator, method: str) -> list[str]:
    drawn: Flags = draw_flags(random, method)
    for name, values in OPTIONS.items():
        if random.random() < 0.3:
            drawn[name] = values[random.integers(len(values))]
    return as_words({"threads": 1, **drawn})


def _problems(ended: Ended, output: Path) -> list[str]:
    """What of the promises does not hold."""
    found, said = [], ended.out + ended.err
    if ended.code not in CODES or "Traceback" in said:
        found.append(f"code {ended.code}: {said[-2000:]}")
    lines = [line for line in ended.err.splitlines() if line.startswith("error: ")]
    if len(lines) != (ended.code != 0) or max(map(len, lines), default=0) > 1100:
        found.append(f"{len(lines)} sentences: {ended.err[-2000:]}")
    records = list(output.rglob(FILE_NAME))
    for path in records:
        try:
            read_record(path)
        except UserError as error:
            found.append(f"partial: {error}")
    if len(records) != (ended.code == 0) or list(output.rglob("*.tmp")):
        found.append(
            f"code {ended.code}, with {len(records)} records and {list(output.rglob('*.tmp'))}"
        )
    return found
