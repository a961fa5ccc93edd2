"""Whole runs of few steps by the clock: plain, in chunks, and in chunks that are compiled already.

python -m benchmarks.short_runs [--steps=1000,3600,20000] [--method=er_ring] [--rounds=2]
"""

import argparse
import tempfile
from collections.abc import Callable

from benchmarks.side_by_side import measure, report
from benchmarks.whole_commands import command

SIZES = {1000: (1000, 1), 3600: (1200, 3), 20000: (1000, 20)}
"""Steps of a run of 10 tasks in batches of 10 -> examples of a task, epochs."""


def sides(method: str, steps: int, kept: str) -> dict[str, Callable[[], None]]:
    """Calls that make a run of so many steps.

    Args:
        method: Such as "er_ring".
        steps: A key of `SIZES`.
        kept: Folder of the compiled programs of the warm one.
    """
    examples, epochs = SIZES[steps]
    run = (
        f"--method={method}", "--dataset=permuted_digits", "--max_tasks=10", "--batch_size=10",
        f"--examples_per_task={examples}", f"--epochs={epochs}", "--progress=none",
    )  # fmt: skip
    return {
        f"{steps} steps, plain": command(*run, "--jit_compile=false"),
        f"{steps} steps, chunks, cold": command(*run, "--jit_compile=true", "--compile_cache=off"),
        f"{steps} steps, chunks, warm": command(
            *run, "--jit_compile=true", f"--compile_cache={kept}"
        ),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default=",".join(map(str, SIZES)))
    parser.add_argument("--method", default="er_ring")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as kept:
        calls = {}
        for steps in map(int, given.steps.split(",")):
            calls |= sides(given.method, steps, kept)
        seconds = measure(calls, given.rounds)
    report(f"Whole runs of {given.method}", {name: 1e3 * s for name, s in seconds.items()}, {})


if __name__ == "__main__":
    main()
