"""The processor time of a step of each system over that of experience replay, from a benchmark."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from nccl_tf.errors import UserError
from nccl_tf.experiment.study.plan import Plan
from nccl_tf.regular_files import read_regular

REFERENCE = "er_reservoir"
"""The system whose step counts as 1."""

Costs = Mapping[str, Mapping[str, float]]
_MAX_BYTES = 2**20


def costs_path(plan: Plan) -> Path:
    """The file beside the plan."""
    return plan.folder / "costs.toml"


def read_costs(plan: Plan) -> Costs:
    """Ratios by the names of setting and system; none where the file is missing.

    Raises:
        UserError: The file cannot be read, or has something else than ratios.
    """
    path = costs_path(plan)
    if not os.path.exists(path):
        return {}
    try:
        content = tomllib.loads(read_regular(path, _MAX_BYTES).decode())
        return {
            setting: {system: float(ratio) for system, ratio in ratios.items()}
            for setting, ratios in content.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"cannot read {path} ({error}): make it again with python -m benchmarks.study_steps"
        ) from error


def costs_text(costs: Costs) -> str:
    """What the file holds for these ratios."""
    parts = [
        f"# Processor time of a step over that of {REFERENCE}, without averaged weights: medians\n"
        "# of rounds in turns. Written by python -m benchmarks.study_steps.\n"
    ]
    for setting, ratios in costs.items():
        lines = (f"{system} = {ratio:.2f}\n" for system, ratio in ratios.items())
        parts.append(f"\n[{setting}]\n{''.join(lines)}")
    return "".join(parts)
