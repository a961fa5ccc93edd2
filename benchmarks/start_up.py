"""From the command to its help, to a finished run and to its first steps, against importing Keras.

python -m benchmarks.start_up
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable

from benchmarks.side_by_side import measure, report, rounds_of

IMPORTS = "import tensorflow, keras"
# The first call of the graph, with its tracing; then the process ends.
FIRST_STEPS = """
import os, sys
from nccl_tf.cli import main
from nccl_tf.learner.fitting.train_loop import TrainFunction
call = TrainFunction.__call__
def first_call(*arguments):
    call(*arguments)
    os._exit(0)
TrainFunction.__call__ = first_call
main(sys.argv)
"""


def process(*arguments: str) -> Callable[[], None]:
    """A call that runs Python with these arguments."""
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 5)
    with tempfile.TemporaryDirectory() as folder:
        sides = {
            "help": process("run.py", "--help"),
            "imports": process("-c", IMPORTS),
            "first steps": process("-c", FIRST_STEPS, f"--output_dir={folder}"),
            # Trained in the warm-up, finished already in every round.
            "finished run": process("run.py", "--max_tasks=1", f"--output_dir={folder}/finished"),
        }
        seconds = measure(sides, rounds)
    ratios = {
        "seconds of --help": (seconds["help"], 2.0),
        "seconds of a finished run, again": (seconds["finished run"], 0.15),
        "first steps of the default job / imports": (
            seconds["first steps"] / seconds["imports"],
            1.1,
        ),
    }
    report("Start-up", {name: 1e3 * value for name, value in seconds.items()}, ratios)


if __name__ == "__main__":
    main()
