"""What a learner says once in a log line, where a call is allowed and may not be what was meant."""

import logging
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.batch import BatchStack, split_inputs
from nccl_tf.streams.arrays import LEAST_SHARE

MOST = 5
"""The root mean square of inputs that a network's first layer should not pass on: little is learned
from more at usual rates, where that of standardised columns is 1, whatever their largest value."""

_FORMS = (keras.layers.InputLayer, keras.layers.Flatten, keras.layers.Reshape)


def hint_of_tasks(learner: Any, x: Any, task_id: int) -> None:
    """Say that each `fit` that names no task learns a new one, at a learner's second such `fit`.

    Args:
        learner: The learner.
        x: What `fit` received.
        task_id: The task that it learns.
    """
    if task_id == 0 or bool(learner.task_is_open.numpy()):
        return
    spec = x.element_spec if isinstance(x, tf.data.Dataset) else x
    inputs = spec[0] if isinstance(spec, tuple) and isinstance(x, tf.data.Dataset) else spec
    if not (isinstance(inputs, dict) and "task" in inputs):
        _say(
            learner, "tasks",
            f"this fit learns task {task_id}: each fit without task_id is a task of its own, and "
            "end_task=False leaves one open",
        )  # fmt: skip


def hint_of_scale(learner: Any, element: Any) -> None:
    """Say that inputs are far smaller or larger than those that a network's first layer rescales.

    Images of values up to 16, or up to 1, under a division by 255 are hardly learned from; those of
    values up to 255 that are not divided, or of 16 bits, make the first steps diverge.

    Args:
        learner: The learner.
        element: The first element of its data, a batch or a stack of them.
    """
    scale = _first_scale(learner.network)
    if scale is None:
        return
    data = element.data if isinstance(element, BatchStack) else element
    (inputs,) = tf.nest.flatten(split_inputs(data[0])[0])
    values = np.abs(np.asarray(inputs, np.float32))
    largest = float(np.max(values, initial=0))
    if not 0 < largest < np.inf:
        return
    is_small = largest * scale < LEAST_SHARE
    if not is_small and np.sqrt(np.mean(np.square(values))) * scale <= MOST:
        return
    _say(
        learner, "scale",
        f"the inputs reach {largest:g}, which the network's first layer makes "
        f"{largest * scale:.2g}: little is learned from such {'small' if is_small else 'large'} "
        "values; pass pixels=stream.pixels to the network, begin it with "
        f"keras.layers.Rescaling(1 / {largest:g}), or standardise the columns of a table",
    )  # fmt: skip


def hint_of_skipped(learner: Any, skipped: int) -> None:
    """Say that steps of a `fit` were skipped, of which its logs show nothing.

    Args:
        learner: The learner.
        skipped: How many.
    """
    if skipped:
        _say(
            learner, "skipped",
            f"{skipped} step{'s' * (skipped != 1)} of this fit had no finite loss and gradient and "
            "changed nothing: look for NaN and infinity in the inputs, or take a lower rate; "
            "model.skipped counts them",
        )  # fmt: skip


def hint_of_nan(learner: Any, count: int) -> None:
    """Say that evaluated examples had NaN in their inputs or outputs.

    Args:
        learner: The learner.
        count: How many.
    """
    _say(
        learner, "nan",
        f"{count} of the evaluated examples ha{'s' if count == 1 else 've'} NaN in inputs or "
        "outputs: an accuracy counts them as wrong, a loss is NaN; fill or leave out what is "
        "missing before, or look for weights that are not finite",
    )  # fmt: skip


def hint_of_models_around(learner: Any) -> None:
    """Say that a head grows which another model has, whose compiled functions stay as they are.

    Args:
        learner: The learner.
    """
    _say(
        learner, "around",
        f"the network that grows is part of another model, whose predict, evaluate and shapes stay "
        f"those of {learner.num_classes} classes: build that model again",
    )  # fmt: skip


def hint_of_short_task(learner: Any, steps: int, window: int) -> None:
    """Say that a task ended before EWC's first window was full, so that nothing holds its weights.

    Args:
        learner: The learner.
        steps: The task's.
        window: Steps of a window.
    """
    if steps < window:
        _say(
            learner, "window",
            f"the task had {steps} step{'s' * (steps != 1)}, fewer than the {window} of a window "
            "of EWC, which has measured nothing in it: name a smaller ewc_window, or take smaller "
            "batches or more epochs",
        )  # fmt: skip


def hint_of_heads(learner: Any, heads: Any) -> None:
    """Say that a stream has a head for each task and the learner one for all.

    Args:
        learner: The learner.
        heads: The classes of each head of the stream; None with a single one.
    """
    if heads is not None and learner.heads is None:
        _say(
            learner, "heads",
            "the stream has a head for each task and the model one for all, which makes it "
            "class-incremental: build the model with heads=stream.heads, or take a stream with "
            'head="single"',
        )  # fmt: skip


def hint_of_earlier_steps(learner: Any) -> None:
    """Say that a stream is learned by a learner that is trained already."""
    steps = int(learner.optimizer.iterations.numpy())
    if steps:
        _say(
            learner, "earlier",
            f"the model has learned {steps} steps before, and goes on from its weights and "
            "memory: build network, memory and model again for a run from the start",
        )  # fmt: skip


def hint_of_shared_memory(memory: Any) -> None:
    """Say that a new learner has a memory that another one has written."""
    draws = getattr(memory, "draws", None)  # a memory of one's own may have none
    if memory.is_allocated and draws is not None and bool(np.any(draws.numpy())):
        logging.getLogger("nccl_tf").warning(
            "the new learner has a %s that another one has used, whose examples it replays: build "
            "it a memory of its own for a run from the start",
            type(memory).__name__,
        )


def _first_scale(network: keras.Model) -> float | None:
    """The factor of the layer that rescales a network's only input; None where there is none."""
    if len(network.inputs) != 1:
        return None
    first = next((layer for layer in network.layers if not isinstance(layer, _FORMS)), None)
    if not isinstance(first, keras.layers.Rescaling) or np.ndim(first.scale) or first.offset:
        return None
    return abs(float(first.scale))


def _say(learner: Any, what: str, sentence: str) -> None:
    if what not in learner.hints_given:
        learner.hints_given.append(what)
        logging.getLogger("nccl_tf").warning("%s", sentence)
