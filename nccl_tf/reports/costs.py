"""The processor time of a step over that of experience replay, from benchmarks."""

import os
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.regular_files import read_regular

REFERENCE = "er_reservoir"
"""The system whose step counts as 1."""

Costs = Mapping[str, Mapping[str, float]]
FILE_NAME = "costs.toml"
"""Beside a study's plan, and beside published records."""
STUDY = "python -m benchmarks.study_steps"
TABLE = "python -m benchmarks.table_steps"
"""The commands that write one: by the names of setting and system, or by stream and settings."""
RATIOS = (
    f"Processor time of a step over that of {REFERENCE}, without averaged weights: medians of "
    "rounds in turns."
)
"""What the numbers are, as the file says above them."""

_MAX_BYTES = 2**20


def read_costs(path: Path, command: str = STUDY) -> Costs:
    """Ratios by two names, those of setting and system or of stream and settings' hash; none where
    the file is missing.

    Args:
        path: The file.
        command: What makes it again.

    Raises:
        UserError: The file cannot be read, or has something else than ratios.
    """
    if not os.path.exists(path):
        return {}
    try:
        content = tomllib.loads(read_regular(path, _MAX_BYTES).decode())
        return {
            setting: {system: float(ratio) for system, ratio in ratios.items()}
            for setting, ratios in content.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"cannot read {path} ({error}): make it again with {command}") from error


def by_hash(costs: Costs) -> dict[str, float]:
    """What a file by stream and settings holds, by the settings' hash alone."""
    return {name: value for values in costs.values() for name, value in values.items()}


def costs_text(costs: Costs, command: str = STUDY, about: str = RATIOS, digits: int = 2) -> str:
    """What the file holds: what its numbers are, which command made them, and a table of each row.

    Args:
        costs: By two names.
        command: What makes it again.
        about: What the numbers are, a sentence.
        digits: Of each number behind the point.
    """
    about = f"{about} Written by {command}."
    head = textwrap.fill(about, 100, initial_indent="# ", subsequent_indent="# ")
    parts = [f"{head}\n"]
    for row, numbers in costs.items():
        lines = (f"{name} = {number:.{digits}f}\n" for name, number in numbers.items())
        parts.append(f"\n[{row}]\n{''.join(lines)}")
    return "".join(parts)
