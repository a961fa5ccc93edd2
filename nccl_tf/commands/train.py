"""The command `train`: every seed that is not finished, and what came out of it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.errors import UserError
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.record import FILE_NAME
from nccl_tf.experiment.run.run_file import settings_to_resume
from nccl_tf.experiment.run.signals import Interrupted
from nccl_tf.experiment.run.train import Run, train_seed
from nccl_tf.reports.terminal import run_summary, seeds_summary


def run(given: Mapping[str, Any]) -> int:
    """Train every seed that is not finished, and print and draw what came out.

    Returns:
        0, or 128 and the number of the signal that came.

    Raises:
        UserError: A setting is bad, data are missing, or the output folder cannot be written.
        LearningFailedError: Ten steps in a row were not finite.
    """
    options = resolve_options(given)
    if given["resume"] is None:
        runs = [Run.of(given, options, seed) for seed in options.seeds]
    else:
        folder = Path(given["resume"])
        settings, seed = settings_to_resume(folder, given)
        runs = [Run(settings, options, seed, folder, given)]
    console = Console(options.progress)
    settings = runs[0].settings
    if settings.distribute is not None and options.diagnostics != "off":
        raise UserError(
            f"--diagnostics={options.diagnostics} with --distribute={settings.distribute}: "
            "diagnostics look at one device; leave one of the two out"
        )
    records = []
    for one in runs:
        try:
            record, files = train_seed(one, _draw, console)
        except Interrupted as interrupted:
            print(
                f"{interrupted}; the same command, or --resume={one.folder}, goes on",
                file=sys.stderr,
            )
            return interrupted.exit_code
        records.append(record)
        console.say("\n".join(["", run_summary(record), *(f"see {path}" for path in files)]))
        console.event(
            "result", seed=one.seed, average_accuracy=record["average_accuracy"],
            forgetting=record["forgetting"], record=str(one.folder / FILE_NAME),
            state_sha256=record["state_sha256"],
        )  # fmt: skip
    if len(records) > 1:
        console.say("\n" + seeds_summary(records))
    return 0


def _draw(record: dict[str, Any], folder: Path) -> list[Path]:
    from nccl_tf.reports.figures.run import save_figures

    return save_figures(record, folder)
