"""A whole run of the command with --diagnostics=subset against one without, on permuted MNIST.

python -m benchmarks.diagnostics
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable

from benchmarks.side_by_side import measure, report, rounds_of

METHODS = ("er_ring", "nccl_ring")
"""One whose Gamma is measured beside its steps, one whose steps measure it."""


def run(method: str, diagnostics: str, folder: str) -> Callable[[], None]:
    """A call that makes one run of 20 tasks."""
    flags = (
        f"--method={method}", "--dataset=permuted_mnist", f"--diagnostics={diagnostics}",
        f"--output_dir={folder}/{diagnostics}", "--overwrite",
    )  # fmt: skip
    return lambda: subprocess.run(
        [sys.executable, "run.py", *flags], check=True, capture_output=True
    )


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 3)
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            f"{method}, {diagnostics}": run(method, diagnostics, folder)
            for method in METHODS
            for diagnostics in ("off", "subset")
        }
        seconds = measure(sides, rounds)
    ratios: dict[str, tuple[float, float | None]] = {
        f"{method}: subset / off": (seconds[f"{method}, subset"] / seconds[f"{method}, off"], 1.25)
        for method in METHODS
    }
    report("A run with diagnostics", {name: 1e3 * s for name, s in seconds.items()}, ratios)


if __name__ == "__main__":
    main()
