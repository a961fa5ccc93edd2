"""Networks and memories that two learners have, of which a log line speaks when one is made."""

import logging
import weakref
from typing import Any, NamedTuple

import keras
import numpy as np

LOGGER = logging.getLogger("nccl_tf")


class _Holder(NamedTuple):
    owner: "weakref.ref[keras.Model]"
    name: str


_HOLDERS: "weakref.WeakKeyDictionary[keras.layers.Layer, _Holder]" = weakref.WeakKeyDictionary()
"""Of each layer with weights that are trained, the learner that was compiled last."""


def _trained_layers(network: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in network._flatten_layers() if layer.trainable_variables]


def hold(owner: keras.Model, network: keras.Model) -> None:
    """Note that a learner, which is compiled now, trains the layers of its network."""
    holder = _Holder(weakref.ref(owner), type(owner).__name__)
    for layer in _trained_layers(network):
        _HOLDERS[layer] = holder


def other_owner(owner: keras.Model, network: keras.Model) -> str:
    """The class of another learner that trains layers of a learner's network; "" for none."""
    holders = map(_HOLDERS.get, _trained_layers(network))
    others = (each.name for each in holders if each is not None and each.owner() is not owner)
    return next(others, "")


def hint_of_shared_memory(memory: Any) -> None:
    """Warn that a new learner has a memory that another one has written."""
    draws = getattr(memory, "draws", None)  # a custom memory may have none
    if memory.is_allocated and draws is not None and bool(np.any(draws.numpy())):
        LOGGER.warning(
            "the new learner has a %s that another one has used, whose examples it replays: build "
            "it a memory of its own for a run from the start",
            type(memory).__name__,
        )
