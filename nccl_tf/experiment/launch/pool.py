"""Many runs: side by side on this machine, or on a Ray cluster."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nccl_tf.experiment.config.flag_table import COMMAND_FLAGS
from nccl_tf.experiment.launch.local_pool import run_locally
from nccl_tf.experiment.launch.ray import run_on_ray
from nccl_tf.experiment.run.run_file import check_run_plugins
from nccl_tf.experiment.run.train import Run


def finish(
    runs: Sequence[Run], given: Mapping[str, Any], say: Callable[[str], None]
) -> dict[Path, str]:
    """Finish every run where `--workers` and `--ray_address` say.

    Args:
        runs: Those that are finished already are not run again.
        given: Flag values by name; None means the default.
        say: Takes a line when a run ends.

    Returns:
        Why runs failed, by their folder.

    Raises:
        UserError: A flag is out of range, there is no such cluster, a run was refused, or a plugin
            has changed since a run was begun.
        Interrupted: A signal came; runs that were under way have written a checkpoint.
    """
    for run in runs:
        run.check_plugins()
    workers = COMMAND_FLAGS["workers"].value(given)
    if given["ray_address"] is not None:
        failed = run_on_ray(runs, given["ray_address"], say)
    else:
        failed = run_locally(runs, workers, say)
    # A plugin's file may have changed while runs were started.
    for run in runs:
        check_run_plugins(run.folder, run.options.plugin)
    return failed
