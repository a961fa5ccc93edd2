"""Marks on variables that no configuration of Keras keeps: excluded, overwritten, frozen."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras

EXCLUDED = "excluded_from_weight_decay"
OVERWRITTEN = "overwritten_with_gradient"
FROZEN = "frozen"
FROZEN_LAYERS = "frozen_layers"


def excluded(
    optimizer: keras.optimizers.Optimizer, variables: Iterable[keras.Variable]
) -> list[keras.Variable]:
    """Those among variables that `exclude_from_weight_decay` of an optimizer has excluded."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    # A step compares names with those of TensorFlow's variables.
    return [v for v in variables if not inner._use_weight_decay(v.value)]


def exclude(optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]) -> None:
    """Exclude variables, and no others, from an optimizer's weight decay."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    inner.exclude_from_weight_decay(var_list=list(variables))


def marks_of(model: keras.Model) -> dict[str, list[int]]:
    """The marks of a compiled model, as places among its weights and its layers with weights."""
    weights = model.weights
    overwritten = [v for v in weights if v.overwrite_with_gradient]
    return {
        EXCLUDED: _places(excluded(model.optimizer, model.trainable_variables), weights),
        OVERWRITTEN: _places(overwritten, weights),
        **frozen_in(model),
    }


def frozen_in(model: keras.Model) -> dict[str, list[int]]:
    """What is frozen of a learner or a network, as places among its weights and layers."""
    layers = _layers(model)
    frozen = [v for v in _made_trainable(layers) if not v.trainable]
    return {
        FROZEN: _places(frozen, model.weights),
        FROZEN_LAYERS: _places([each for each in layers if not each.trainable], layers),
    }


def mark(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, marks: Mapping[str, Sequence[int]]
) -> None:
    """Give the weights of a model the marks that `marks_of` found.

    Args:
        model: Made as the one with these marks was.
        optimizer: That it is to be compiled with.
        marks: As `marks_of` gives them.
    """
    places = {name: set(some) for name, some in marks.items()}
    for place, weight in enumerate(model.weights):
        weight.overwrite_with_gradient = place in places[OVERWRITTEN]
    freeze(model, marks)
    excludes = [v for place, v in enumerate(model.weights) if place in places[EXCLUDED]]
    exclude(optimizer, excludes)


def freeze(model: keras.Model, marks: Mapping[str, Sequence[int]]) -> None:
    """Freeze of a learner or a network what `frozen_in` found, and nothing else."""
    weights, layers = model.weights, _layers(model)
    frozen, frozen_layers = set(marks[FROZEN]), set(marks[FROZEN_LAYERS])
    for place, layer in enumerate(layers):  # a layer before those within, which follow it
        is_trainable = place not in frozen_layers
        if layer.trainable != is_trainable:
            layer.trainable = is_trainable
    made_trainable = set(map(id, _made_trainable(layers)))
    for place, weight in enumerate(weights):
        if id(weight) in made_trainable:
            weight.trainable = place not in frozen


def _layers(model: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in model._flatten_layers() if layer.weights]


def _made_trainable(layers: Sequence[keras.layers.Layer]) -> Iterator[keras.Variable]:
    """The weights of layers that can be trained, whether they are frozen or not."""
    return (variable for layer in layers for variable in layer._trainable_variables)


def _places(some: Iterable[Any], among: Iterable[Any]) -> list[int]:
    ids = set(map(id, some))
    return [place for place, each in enumerate(among) if id(each) in ids]
