"""A run as a process of its own: reads what to run from stdin, and ends when its parent does.

The exit code is that of the command: 0 done, 2 bad input, 3 learning that failed, 128 + a signal.
"""

import dataclasses
import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from nccl_tf.errors import LearningFailedError, UserError, format_error
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Plot, Run, no_plots, train_seed
from nccl_tf.extensions.plugins import load_plugins

LEARNING_FAILED = "learning failed: ten steps in a row had no finite loss and gradient"
"""What is said of a run among many whose learning failed."""


def make_run(flag_values: Mapping[str, Any], seed: int, **options: Any) -> Run:
    """The run of flag values, as they are or as JSON gives them back, with its plugins imported.

    The plugins are those that the command line of the parent named.

    Args:
        flag_values: By name; None means the default.
        seed: Its seed.
        **options: Fields of `Options` that hold in place of the flags.

    Raises:
        UserError: A plugin cannot be imported, or a value is bad.
    """
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in flag_values.items()}
    load_plugins(values.get("plugin") or ())
    return Run.from_flags(values, dataclasses.replace(resolve_options(values), **options), seed)


def main(plot: Plot = no_plots) -> int:
    """Run what a line of JSON on stdin says.

    It is {"flag_values": by name, "seed": number, "options": in place of the flags}.

    Args:
        plot: As for `train_seed`.

    Returns:
        The exit code.
    """
    job = json.loads(sys.stdin.readline())
    # As a checkpoint is to be written when the parent is killed, which cannot say so any more.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        train_seed(make_run(job["flag_values"], job["seed"], **job["options"]), plot)
    except Interrupted as interrupted:
        return interrupted.exit_code
    except (UserError, LearningFailedError) as error:
        print(format_error(error), file=sys.stderr)
        return error.exit_code
    return 0


def _end_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
