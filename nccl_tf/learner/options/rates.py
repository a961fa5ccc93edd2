"""Rates of layers: a share of the optimizer's update for the weights of some of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.learner.options.option import Option


class Rates(Option):
    """Scales the update of some weights: x <- x0 + c (x - x0), whatever the optimizer makes of it.

    Where the update is proportional to the rate, weight decay included, that is a rate of c times
    the optimizer's. Its moments are those of the whole gradient.

    Args:
        rates: Factors by the name of a layer or a part of a weight's path, such as
            {"backbone": 0.01, "backbone/norm": 1.0}; of several that fit the longest counts.
        network: Whose weights they are.

    Raises:
        UserError: There are none, a name fits no trainable weight, or a factor is no number from 0.
    """

    on_replicas = False

    def __init__(self, rates: Mapping[str, float], network: keras.Model):
        if not isinstance(rates, Mapping) or not rates:
            raise UserError(
                f"received rates={rates!r}, expected factors by the names of layers, such as "
                '{"backbone": 0.01}'
            )
        for name, factor in rates.items():
            is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
            if not is_number or not 0 <= factor < float("inf"):
                raise UserError(
                    f"received the rate {factor!r} of {name!r}, expected a finite factor from 0"
                )
        self.rates = dict(rates)
        found = [(variable, self._factor_of(variable)) for variable in network.trainable_variables]
        self._factors = [(variable, share) for variable, share in found if share is not None]
        for name in self.rates:
            if not any(_fits(name, v) for v in network.trainable_variables):
                paths = ", ".join(v.path for v in network.trainable_variables[:5])
                raise UserError(
                    f"received a rate of {name!r}, which fits no trainable weight: expected the "
                    f"name of a layer, or a part of a path such as {paths}"
                )

    @classmethod
    def of(cls, rates: Mapping[str, float] | None, *args: Any) -> "Rates | None":
        """As the constructor; None without rates."""
        return None if rates is None else cls(rates, *args)

    def _factor_of(self, variable: keras.Variable) -> float | None:
        fitting = [name for name in self.rates if _fits(name, variable)]
        return self.rates[max(fitting, key=len)] if fitting else None

    @contextmanager
    def applying(self) -> Iterator[None]:
        """Scale the update of the body."""
        before = [(v, tf.identity(v.value), factor) for v, factor in self._factors]
        yield
        for variable, value, factor in before:
            moved = variable.value - value
            variable.assign(value + tf.cast(factor, value.dtype) * moved)

    def get_config(self) -> dict[str, Any]:
        return {"rates": self.rates}


def _fits(name: str, variable: keras.Variable) -> bool:
    """Whether a name is a part of a weight's path."""
    return f"/{name}/" in f"/{variable.path}/"
