"""What sets several settings of one method apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from nccl_tf.experiment.config.settings import flattened


def differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is particular to each of several settings, such as "beta_max 0.2"; "" for what is usual.

    Named are the values that not more than half of the settings share, of what all of them have.

    Args:
        settings: As in `result.json`; earlier versions of the package have fewer names in it.
    """
    flat = [flattened(own) for own in settings]
    common = set.intersection(*map(set, flat))
    return [
        ", ".join(
            f"{name} {'default' if value is None else value}"
            for name, value in own.items()
            if name in common and 2 * sum(other[name] == value for other in flat) <= len(flat)
        )
        for own in flat
    ]
