"""TensorBoard's event files of a run that is begun again."""

import contextlib
import os
import re
from pathlib import Path

from nccl_tf.experiment.run.files import read_beginning, remove, warn_of_foreign

_NAME = re.compile(r"events\.out\.tfevents\..+")
_SIGNATURE = b"brain.Event:"
"""In the first record of every event file."""


def clear_events(folder: Path) -> None:
    """Remove the event files below a folder that a run wrote, and the folders that are empty then.

    Other files are left and named in a warning; links are not followed.

    Args:
        folder: The run's folder of events, which may be missing.
    """
    if folder.is_symlink():
        return
    foreign = []
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent) / name
            if _NAME.fullmatch(name) and _is_event_file(path):
                remove(path)
            else:
                foreign.append(str(path.relative_to(folder)))
        with contextlib.suppress(OSError):
            os.rmdir(parent)
    if foreign:
        warn_of_foreign(folder, foreign)


def _is_event_file(path: Path) -> bool:
    """Whether a file begins as event files do; that of a killed process may be empty."""
    beginning = read_beginning(path, 64)
    return beginning == b"" or _SIGNATURE in (beginning or b"")
