"""Options of a run that do not change its results: where it reads and writes, how it reports."""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nccl_tf.choices import DIAGNOSTICS, PROGRESS_MODES
from nccl_tf.errors import UserError, check_name
from nccl_tf.experiment.config.validation import (
    at_least,
    at_most,
    positive_rate,
)

_MOST_STEPS = 100_000
DEVICES = re.compile(r"auto|cpu(:[1-9][0-9]?)?|gpu(:[0-9]{1,3})?")
"""What `device` may be: all that there is, the CPU (cut into N devices), all GPUs, or GPU N."""


@dataclass(frozen=True)
class Options:
    """Where a run reads and writes, and which seeds are run.

    Args:
        seeds: One run each, 0 or above, none twice.
        output_dir: Folder of all runs.
        overwrite: Run again what is finished already.
        record_every: Steps in one row of steps.csv.
        steps_per_execution: Steps in one call of the graph; None for a number that is fast.
        tensorboard: Whether events are written into the run's folder.
        profile: Whether TensorFlow's profiler traces some steps into the run's folder.
        diagnostics: "off", or how far `ForgettingDiagnostics` measures: "subset" or "full".
        checkpoint_every: Seconds between checkpoints inside a task.
        device: "auto", "cpu", "cpu:N", "gpu" or "gpu:N".
        progress: "bar", "plain", "json" or "none"; None for "bar" on a terminal, else "plain".
        data_dir: Folder of TensorFlow Datasets; None for its own default.
        manual_dir: What the user brings; None for the default.
    """

    seeds: tuple[int, ...] = (0,)
    output_dir: str = "runs"
    overwrite: bool = False
    record_every: int = 50
    steps_per_execution: int | None = None
    tensorboard: bool = False
    profile: bool = False
    diagnostics: str = "off"
    checkpoint_every: float = 60.0
    device: str = "auto"
    progress: str | None = None
    data_dir: str | None = None
    manual_dir: str | None = None


def resolve_options(given: Mapping[str, Any]) -> Options:
    """Options from flag values by name; None or absent means the default.

    Raises:
        UserError: A seed is negative or named twice, a count is below 1, or the
            package for `tensorboard` is missing.
    """
    names = Options.__dataclass_fields__
    options = Options(**{k: given[k] for k in names if given.get(k) is not None})
    at_least("record_every", options.record_every, 1, "steps")
    if options.steps_per_execution is not None:
        at_least("steps_per_execution", options.steps_per_execution, 1, "steps")
        at_most("steps_per_execution", options.steps_per_execution, _MOST_STEPS, "steps")
    if not options.seeds or min(options.seeds) < 0 or len(set(options.seeds)) < len(options.seeds):
        raise UserError(
            f"--seeds={','.join(map(str, options.seeds))}: expected different whole numbers of at "
            "least 0, such as --seeds=0,1,2"
        )
    check_name("diagnostics", options.diagnostics, DIAGNOSTICS)
    positive_rate("checkpoint_every", options.checkpoint_every)
    if options.progress is not None:
        check_name("progress", options.progress, PROGRESS_MODES)
    if not DEVICES.fullmatch(options.device):
        raise UserError(f"--device={options.device}: expected auto, cpu, cpu:N, gpu or gpu:N")
    if options.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise UserError(
            "--tensorboard needs the package tensorboard, which is not installed: install it with "
            "`pip install tensorboard`, or leave the flag out"
        )
    return options
