"""A run as a process of its own: reads what to run from stdin, and ends when its parent does.

The exit code is that of the command: 0 done, 2 bad input, 3 learning that failed, 128 + a signal.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from nccl_tf.errors import LearningFailedError, UserError, one_line
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Run, train_seed
from nccl_tf.plugins import load_plugins

LEARNING_FAILED = "learning failed: ten steps in a row had no finite loss and gradient"
"""What is said of a run among many whose learning failed."""


def run_of(given: Mapping[str, Any], seed: int) -> Run:
    """The run of flag values, as they are or as JSON gives them back, with its plugins imported.

    The plugins are those that the command line of the parent named.

    Raises:
        UserError: A plugin cannot be imported, or a value is bad.
    """
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    load_plugins(given.get("plugin") or ())
    return Run.of(given, resolve_options(given), seed)


def main() -> int:
    """Run what a line of JSON on stdin says: {"given": flag values, "seed": number}."""
    job = json.loads(sys.stdin.readline())
    # As a checkpoint is to be written when the parent is killed, which cannot say so any more.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        train_seed(run_of(job["given"], job["seed"]))
    except Interrupted as interrupted:
        return interrupted.exit_code
    except (UserError, LearningFailedError) as error:
        print(one_line(error), file=sys.stderr)
        return error.exit_code
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
