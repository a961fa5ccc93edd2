"""Flags of variables that no configuration of Keras keeps: excluded, overwritten, frozen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

from nccl_tf.keras_private import decays, layers_of, own_trainable

EXCLUDED = "excluded_from_weight_decay"
OVERWRITTEN = "overwritten_with_gradient"
FROZEN = "frozen"
FROZEN_LAYERS = "frozen_layers"


def excluded(
    optimizer: keras.optimizers.Optimizer, variables: Iterable[keras.Variable]
) -> list[keras.Variable]:
    """Those among variables that `exclude_from_weight_decay` of an optimizer has excluded."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return [v for v in variables if not decays(inner, v)]


def exclude(optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]) -> None:
    """Exclude variables, and no others, from an optimizer's weight decay."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner.exclude_from_weight_decay(var_list=list(variables))


class VariableFlags:
    """The flags of the variables of a learner or a network.

    Args:
        model: The learner, or the network, with its layers.
    """

    def __init__(self, model: keras.Model):
        self._weights, self._trainable = model.weights, model.trainable_variables
        self._layers = [layer for layer in layers_of(model, include_self=True) if layer.weights]

    def places(self, optimizer: keras.optimizers.Optimizer) -> dict[str, list[int]]:
        """All flags, as places among the weights and the layers with weights.

        Args:
            optimizer: That the model is compiled with.
        """
        overwritten = [v for v in self._weights if v.overwrite_with_gradient]
        return {
            EXCLUDED: _places(excluded(optimizer, self._trainable), self._weights),
            OVERWRITTEN: _places(overwritten, self._weights),
            **self.frozen(),
        }

    def frozen(self) -> dict[str, list[int]]:
        """The places of frozen variables among the weights, and of frozen layers among those."""
        variables = [v for v in _made_trainable(self._layers) if not v.trainable]
        layers = [layer for layer in self._layers if not layer.trainable]
        return {
            FROZEN: _places(variables, self._weights),
            FROZEN_LAYERS: _places(layers, self._layers),
        }

    def set(
        self, flags: Mapping[str, Sequence[int]], optimizer: keras.optimizers.Optimizer
    ) -> None:
        """Give the variables the flags that `places` told, and no others.

        Args:
            flags: Of a model that was made as this one.
            optimizer: That this one is to be compiled with.
        """
        places = {name: set(numbers) for name, numbers in flags.items()}
        for place, weight in enumerate(self._weights):
            weight.overwrite_with_gradient = place in places[OVERWRITTEN]
        self.freeze(flags)
        exclude(optimizer, [v for i, v in enumerate(self._weights) if i in places[EXCLUDED]])

    def freeze(self, flags: Mapping[str, Sequence[int]]) -> None:
        """Freeze what `frozen` told, and nothing else."""
        frozen, frozen_layers = set(flags[FROZEN]), set(flags[FROZEN_LAYERS])
        for place, layer in enumerate(self._layers):  # a layer before those within, which follow it
            is_trainable = place not in frozen_layers
            if layer.trainable != is_trainable:
                layer.trainable = is_trainable
        made_trainable = set(map(id, _made_trainable(self._layers)))
        for place, weight in enumerate(self._weights):
            if id(weight) in made_trainable:
                weight.trainable = place not in frozen


def _made_trainable(layers: Sequence[keras.layers.Layer]) -> Iterator[keras.Variable]:
    """The weights of layers that can be trained, whether they are frozen or not."""
    return (variable for layer in layers for variable in own_trainable(layer))


def _places(some: Iterable[Any], among: Iterable[Any]) -> list[int]:
    ids = set(map(id, some))
    return [place for place, each in enumerate(among) if id(each) in ids]
