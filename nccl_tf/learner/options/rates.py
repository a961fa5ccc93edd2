"""Rates of layers: a share of the optimizer's update for the weights of some of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.keras_private import layers_of
from nccl_tf.learner.losses import ExampleLoss
from nccl_tf.learner.options.option import Option


class Rates(Option):
    """Scales the update of some weights: x <- x0 + c (x - x0), whatever the optimizer makes of it.

    Where the update is proportional to the rate, weight decay included, that is a rate of c times
    the optimizer's. Its moments are those of the whole gradient.

    Args:
        rates: Factors by the name of a layer or a part of a weight's path, such as
            {"backbone": 0.01, "norm": 1.0}; a model within the network is a layer too. Of several
            that fit a weight, that of the fewest weights counts, and of equally many the longest.
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
        fitting = {name: _fitting(name, network) for name in self.rates}
        for name, variables in fitting.items():
            if not variables:
                layers = ", ".join(repr(layer.name) for layer in network.layers[-5:])
                paths = ", ".join(v.path for v in network.trainable_variables[:5])
                raise UserError(
                    f"received a rate of {name!r}, which fits no trainable weight: expected the "
                    f"name of a layer such as {layers}, or a part of a path such as {paths}"
                )
        # The factors of the fewest weights are the last that are written.
        names = sorted(fitting, key=lambda name: (-len(fitting[name]), len(name)))
        shares = {id(v): self.rates[name] for name in names for v in fitting[name]}
        self._factors = [(v, shares[id(v)]) for v in network.trainable_variables if id(v) in shares]

    @classmethod
    def of(cls, rates: Mapping[str, float] | None, *args: Any) -> "Rates | None":
        """As the constructor; None without rates."""
        return None if rates is None else cls(rates, *args)

    def on_compile(self, optimizer: Any, loss: ExampleLoss) -> None:
        """Check the optimizer.

        Raises:
            UserError: It averages the weights itself.
        """
        if getattr(optimizer, "inner_optimizer", optimizer).use_ema:
            raise UserError(
                "received rates and an optimizer with use_ema=True, which averages the weights "
                "before their update is scaled: leave one of the two out, or take average_weights"
            )

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


def _fitting(name: str, network: keras.Model) -> list[keras.Variable]:
    """The trainable weights of layers of that name, and those with it as a part of their path.

    The paths of a model that was built before it became a layer of another lack its name.
    """
    of_layers = {
        id(variable)
        for layer in layers_of(network)
        if layer.name == name
        for variable in layer.trainable_variables
    }
    return [
        variable
        for variable in network.trainable_variables
        if id(variable) in of_layers or f"/{name}/" in f"/{variable.path}/"
    ]
