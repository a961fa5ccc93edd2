"""Several seeds of an experiment trained together, from their settings to their records."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.experiment.console import Console
from nccl_tf.experiment.interrupts import interrupt_requests
from nccl_tf.experiment.lock import locked
from nccl_tf.experiment.options import Options
from nccl_tf.experiment.records import write_record
from nccl_tf.experiment.run_file import write_run_file
from nccl_tf.experiment.settings import Settings
from nccl_tf.experiment.train_seed import Record, Run, make_folder, out_of_memory_told

METHODS = ("finetune", "er_ring", "er_reservoir", "agem", "nccl_ring", "nccl_reservoir")
"""The methods whose seeds can be trained together."""


def check_together(settings: Settings, options: Options, resume: str | None) -> None:
    """Check that seeds can be trained together.

    Args:
        settings: Of all of them.
        options: Likewise.
        resume: Folder of the one run to go on with, or None.

    Raises:
        UserError: They cannot; the message names what stands in the way.
    """
    own = settings.hyperparameters
    needed = {
        "method": (settings.method, METHODS),
        "network": (settings.network, ("mlp",)),
        "mask": (settings.mask, (None, "own")),
        "precision": (settings.precision, ("float32",)),
        "smoothness_mode": (own.get("smoothness_mode", "fixed"), ("fixed",)),
        "gradients": (own.get("gradients", "auto"), ("auto",)),
        "jit_compile": (settings.jit_compile, (False,)),
        "deterministic": (settings.deterministic, (False,)),
        "distribute": (settings.distribute, (None,)),
        "diagnostics": (options.diagnostics, ("off",)),
        "tensorboard": (options.tensorboard, (False,)),
        "resume": (resume, (None,)),
    }
    for name, (value, possible) in needed.items():
        if value not in possible:
            named = ", ".join(str(x) for x in possible if x not in (None, False))
            others = f"only {named} can be" if named else "that cannot be"
            text = str(value).lower() if isinstance(value, bool) else value
            raise UserError(
                f"--vectorize_seeds with --{name}={text}: {others} trained for several seeds "
                "together; leave one of the two out"
            )


def train_together(
    runs: Sequence[Run], draw: Callable[[Record, Path], list[Path]], console: Console
) -> list[tuple[Record, list[Path]]]:
    """Train, evaluate and write several unfinished seeds of the same settings.

    What an earlier process left of them is started over: there are no checkpoints.

    Args:
        runs: The runs, two or more.
        draw: Makes pictures of a record in a folder before the record is written there.
        console: Takes what there is to say.

    Returns:
        The record of each run, and the files that were made.

    Raises:
        UserError: As for `train_seed`, or the seeds cannot be trained together.
        Interrupted: A signal came.
        LearningFailedError: Ten steps in a row of one seed were not finite.
    """
    first = runs[0]
    for run in runs:
        make_folder(run.folder)
    with ExitStack() as locks:
        for run in runs:
            locks.enter_context(locked(run.folder))
        request = locks.enter_context(interrupt_requests())
        for run in runs:
            write_run_file(run.folder, run.settings, run.seed, run.given)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        from nccl_tf.experiment.devices import use_device
        from nccl_tf.experiment.run_seeds import run_seeds

        use_device(first.options.device)
        with out_of_memory_told():
            records = run_seeds(runs, request, console)
        results = []
        for run, record in zip(runs, records, strict=True):
            pictures = draw(record, run.folder)
            files = [write_record(record, run.folder), run.folder / "steps.csv", *pictures]
            results.append((record, files))
    return results
