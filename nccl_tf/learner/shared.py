"""Networks and memories that two learners have, of which a log line speaks when one is made."""

import logging
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

if TYPE_CHECKING:
    from nccl_tf.learner.learner import Learner

LOGGER = logging.getLogger("nccl_tf")


class _Holder(NamedTuple):
    learner: "weakref.ref[Learner]"
    name: str


_HOLDERS: "weakref.WeakKeyDictionary[keras.layers.Layer, _Holder]" = weakref.WeakKeyDictionary()
"""Of each layer with weights that are trained, the learner that was compiled last."""


def _trained_layers(network: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in network._flatten_layers() if layer.trainable_variables]


def hold(learner: "Learner") -> None:
    """Note that a learner, which is compiled now, trains the layers of its network."""
    holder = _Holder(weakref.ref(learner), type(learner).__name__)
    for layer in _trained_layers(learner.network):
        _HOLDERS[layer] = holder


def hint_of_shared_network(learner: "Learner") -> None:
    """Warn once that another learner trains layers of a learner's network."""
    for layer in _trained_layers(learner.network):
        holder = _HOLDERS.get(layer)
        if holder is not None and holder.learner() is not learner:
            learner.warn_once(
                "network",
                f"the network of this {type(learner).__name__} is that of another learner, "
                f"{holder.name}: each goes on from the weights that the other leaves; to compare "
                "them build a network for each",
            )
            return


def hint_of_shared_memory(memory: Any) -> None:
    """Warn that a new learner has a memory that another one has written."""
    draws = getattr(memory, "draws", None)  # a custom memory may have none
    if memory.is_allocated and draws is not None and bool(np.any(draws.numpy())):
        LOGGER.warning(
            "the new learner has a %s that another one has used, whose examples it replays: build "
            "it a memory of its own for a run from the start",
            type(memory).__name__,
        )
