"""The command: `python -m nccl_tf`, as `nccl-tf` and run.py."""

import faulthandler
import os
import signal

from nccl_tf.quiet_start import print_at_once
from nccl_tf.standard_streams import keep_standard_streams


def main() -> None:
    """Run the command line of this process, which a Ctrl-C ends at any time with exit code 130."""
    keep_standard_streams()
    faulthandler.enable()
    # Before the imports, some of which turn a KeyboardInterrupt into errors of their own.
    before = signal.signal(signal.SIGINT, _stop)
    try:
        from nccl_tf.cli import main as run_command

        run_command()
    except KeyboardInterrupt:  # of a plugin's own: no signal raises it here
        _stop(signal.SIGINT, None)
    finally:
        signal.signal(signal.SIGINT, before)


def _stop(signum: int, frame: object) -> None:
    print_at_once("stopped by SIGINT")
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
