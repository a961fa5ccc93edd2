"""The command `figures`: a picture from the records of finished runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nccl_tf.experiment.options import resolve_options
from nccl_tf.reports.figure_command import draw


def run(given: Mapping[str, Any]) -> int:
    """Draw the picture that `--figure` names.

    Raises:
        UserError: There are no fitting records, or a file cannot be written.
    """
    for path in draw(given, Path(resolve_options(given).output_dir)):
        print(f"see {path}")
    return 0
