"""Processes that begin with TensorFlow imported: forks of one that has imported it and no more.

An import takes ten seconds of the processor, which is most of what a test spends that starts a
process often. Where the start itself is tested, Python is started anew.
"""

import multiprocessing
import os
import runpy
import signal
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["nccl_tf.cli", "keras", "tensorflow"])


def start(module: str, argv: list[str], errors: Path) -> BaseProcess:
    """Starts `python -m MODULE ARGV`, whose stderr goes to a file."""
    process = _FORKS.Process(target=_run, args=(module, argv, errors))
    process.start()
    return process


def _run(module: str, argv: list[str], errors: Path) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
    sys.argv = [module, *argv]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:  # ends a Python of its own by the signal, a fork with exit code 1
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
