"""Rates of layers as texts, such as "hidden1:0.1"; imports nothing heavy."""

import math
from collections.abc import Sequence

from nccl_tf.errors import UserError


def rates_of_layers(texts: Sequence[str]) -> dict[str, float]:
    """Factors on the update of layers by name, sorted by it.

    Args:
        texts: Each the name of a layer, or a part of a weight's path, and a factor.

    Raises:
        UserError: A text has another form, a factor is no finite number from 0, or a name comes
            twice.
    """
    rates: dict[str, float] = {}
    for text in texts:
        name, _, factor = text.rpartition(":")
        try:
            value = float(factor)
        except ValueError:
            value = math.nan
        if not name or not 0 <= value < math.inf:
            raise UserError(
                f"--rates={text}: expected the name of a layer and a finite factor from 0, such as "
                "hidden1:0.1"
            )
        if name in rates:
            raise UserError(f"--rates has {name} twice: give it once")
        rates[name] = value
    return dict(sorted(rates.items()))
