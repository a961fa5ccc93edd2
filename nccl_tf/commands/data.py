"""The command `data`: prepares a data set, checks it and describes it."""

import sys
from collections.abc import Mapping
from typing import Any

from nccl_tf.experiment.options import resolve_options
from nccl_tf.reports.data_command import describe


def run(given: Mapping[str, Any]) -> int:
    """Prepare a data set, check it and describe it.

    Returns:
        1 if the check found a fault, else 0.

    Raises:
        UserError: The data are missing or broken, or the picture cannot be written.
    """
    text, faults = describe(given, resolve_options(given))
    print(text)
    for fault in faults:
        print(f"fault: {fault}", file=sys.stderr)
    return 1 if faults else 0
