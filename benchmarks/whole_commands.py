"""Whole commands by the clock: a T9 cell, five seeds beside one, a sweep of small trials.

python -m benchmarks.whole_commands
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable

from benchmarks.side_by_side import measure, report, rounds_of

CELL = ("--method=nccl_ring", "--dataset=permuted_mnist")
RATES = "learning_rate:0.01,0.02,0.03,0.05,0.1,0.2,0.3,0.5"


def command(*words: str) -> Callable[[], None]:
    """A call that runs `run.py` in an empty output folder."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            whole = [sys.executable, "run.py", *words, f"--output_dir={folder}"]
            subprocess.run(whole, check=True, capture_output=True)

    return run


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 2)
    small = ("--method=er_ring", "--dataset=split_digits", f"--sweep={RATES}", "--workers=2")
    sides = {
        "one seed": command(*CELL),
        "five seeds": command(*CELL, "--seeds=0,1,2,3,4", "--workers=2"),
        "sweep of 8 trials": command("sweep", *small),
    }
    seconds = measure(sides, rounds)
    ratios: dict[str, tuple[float, float | None]] = {
        "seconds of a T9 cell": (seconds["one seed"], 14.0),
        "five seeds with two workers / one seed": (
            seconds["five seeds"] / seconds["one seed"],
            2.6,
        ),
        "seconds a trial of a sweep of 8, two workers": (seconds["sweep of 8 trials"] / 8, 3.0),
    }
    report("Whole commands", {name: 1e3 * value for name, value in seconds.items()}, ratios)


if __name__ == "__main__":
    main()
