"""Warnings of what is likely not meant: of data, and of what two learners share."""

import logging
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.keras_private import layers_of
from nccl_tf.learner.heads import HeadMasks
from nccl_tf.streams.arrays import LEAST_SHARE

LOGGER = logging.getLogger("nccl_tf")
MOST = 5
"""The root mean square of inputs that a network's first layer should not pass on: little is learned
from more at usual rates, where that of standardised columns is 1, whatever their largest value."""
LARGE_COLUMN = 1000
"""The root mean square of a column from which a dense network without normalisation is told to
learn little: it drowns the others for Adam, and makes the steps of SGD diverge. Pixels of 8 bits,
embeddings and standardised columns stay far below it."""
FAR_TARGETS = 2
"""How many deviations from 0 the mean of targets may be where outputs are replayed: those that were
kept first are near 0."""
RARE, FEW_SLOTS = 0.2, 20
"""A class is rare below this share of what each class had if all were equal; so few expected slots
of it are told of."""
_FORMS = (keras.layers.InputLayer, keras.layers.Flatten, keras.layers.Reshape)
_RESCALE = (
    keras.layers.Normalization, keras.layers.BatchNormalization, keras.layers.LayerNormalization,
    keras.layers.GroupNormalization, keras.layers.RMSNormalization,
    keras.layers.UnitNormalization, keras.layers.Rescaling, keras.layers.Lambda,
)  # fmt: skip


def task_warning(task_id: int) -> str:
    """A warning that each `fit` that names no task learns a new one.

    Args:
        task_id: The task that a `fit` learns.
    """
    return (
        f"this fit learns task {task_id}: each fit without task_id starts a new task, unless "
        "the fit before had end_task=False"
    )


def unpassed_warning(option: str, task_id: int) -> str:
    """A warning that a task ends without the pass over its examples that an option asks for.

    Args:
        option: The class of the option.
        task_id: The task.
    """
    return (
        f"task {task_id} ends without the pass over its examples that {option} asks for, so that "
        "nothing of them is kept: fit with end_task=True, or learn, passes what it was given"
    )


def adapters_warning(layer: keras.layers.Layer | None) -> str | None:
    """A warning that no step will ever move adapters.

    Args:
        layer: A layer with such, of `adapters.dead`; None where there is none.
    """
    if layer is None:
        return None
    return (
        f"both matrices of the adapters of the layer {layer.name!r} are zero, so that no gradient "
        "moves them: Keras has merged them into the kernel of a network that was saved alone; draw "
        "the first one anew, such as by layer.lora_kernel_a.assign(keras.initializers.HeUniform()("
        "layer.lora_kernel_a.shape)), or load the file of learner.save, which keeps them"
    )


def scale_warning(network: keras.Model, few: Any) -> str | None:
    """A warning that inputs are far from the size that a network's first layer rescales.

    Images of values up to 16, or up to 1, under a division by 255 are hardly learned from; those of
    values up to 255 that are not divided, or of 16 bits, make the first steps diverge.

    Args:
        network: The network.
        few: Inputs of a few examples, [n, ...].

    Returns:
        None where they are not.
    """
    scale = _first_scale(network)
    if scale is None:
        return None
    (inputs,) = tf.nest.flatten(few)
    values = np.abs(np.asarray(inputs, np.float32))
    largest = float(np.max(values, initial=0))
    if not 0 < largest < np.inf:
        return None
    size = "small" if largest * scale < LEAST_SHARE else "large"
    if size == "large" and np.sqrt(np.mean(np.square(values))) * scale <= MOST:
        return None
    return (
        f"the inputs reach {largest:g}, which the network's first layer makes "
        f"{largest * scale:.2g}: a network learns little from such {size} values; pass pixels="
        f"stream.pixels to the network, begin it with keras.layers.Rescaling(1 / {largest:g}), or "
        "standardise the columns of a table"
    )


def column_warning(network: keras.Model, few: Any) -> str | None:
    """A warning that a table has columns so large that the others are hardly learned from.

    Only of tables of floats whose first layer is dense, in networks without a layer that rescales.

    Args:
        network: The network.
        few: Inputs of a few examples, [n, ...].

    Returns:
        None where it has none.
    """
    if len(network.inputs) != 1 or len(network.inputs[0].shape) != 2:
        return None
    (inputs,) = tf.nest.flatten(few)
    first = next((layer for layer in network.layers if not isinstance(layer, _FORMS)), None)
    rescales = any(isinstance(layer, _RESCALE) for layer in layers_of(network, include_self=True))
    if not isinstance(first, keras.layers.Dense) or rescales or not _is_of_floats(inputs):
        return None
    sizes = np.sqrt(np.mean(np.square(np.asarray(inputs, np.float64)), axis=0))
    column = int(np.argmax(sizes)) if np.isfinite(sizes).all() else 0
    if not LARGE_COLUMN < sizes[column] < np.inf:
        return None
    return (
        f"column {column} of the inputs is of the size {sizes[column]:.2g} and no layer rescales "
        "it, so that the network hardly learns from the others: begin it with "
        "keras.layers.Normalization(), after its adapt(inputs) on data of the first task, or "
        "standardise the columns of the stream by stream.map"
    )


def far_targets_warning(targets: Any) -> str | None:
    """A warning that targets are far from 0 for their spread, where outputs are replayed.

    The first outputs that a memory keeps are those of weights that were not trained, near 0: to
    them the network is held as to right ones.

    Args:
        targets: Numbers to predict, [n, ...]; others are left alone.

    Returns:
        None where they are not.
    """
    if not _is_array(targets) or not _is_of_floats(targets):
        return None
    rows = np.asarray(targets, np.float64).reshape(len(targets), -1)
    mean, deviation = rows.mean(axis=0), rows.std(axis=0)
    far = np.abs(mean) > FAR_TARGETS * deviation
    if not (far & (deviation > 0)).any():
        return None
    place = int(np.argmax(far & (deviation > 0)))
    return (
        f"the targets have the mean {mean[place]:.3g} and the deviation {deviation[place]:.3g}, "
        "and the memory replays the outputs of the first steps, which are near 0: standardise the "
        "targets, (y - mean) / deviation, and predictions back, or take ExperienceReplay"
    )


def rare_class_warning(labels: Any, capacity: int) -> str | None:
    """A warning that a class is so rare that a uniform sample hardly has any of it.

    Args:
        labels: Class numbers of the examples, int [n]; others are left alone.
        capacity: Slots of the sample.

    Returns:
        None where none is.
    """
    labels = np.asarray(labels) if _is_array(labels) else np.zeros(0)
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(labels) <= capacity:
        return None
    classes, counts = np.unique(labels, return_counts=True)
    share = counts.min() / len(labels)
    slots = share * capacity
    if share >= RARE / len(classes) or slots >= FEW_SLOTS:
        return None
    return (
        f"class {int(classes[counts.argmin()])} is {share:.1%} of the examples, so that about "
        f"{slots:.0f} of the reservoir's {capacity} slots hold it: take a BalancedMemory, "
        "which keeps as many of each class"
    )


def _is_array(values: Any) -> bool:
    return isinstance(values, (np.ndarray, tf.Tensor))


def _is_of_floats(inputs: Any) -> bool:
    return tf.as_dtype(inputs.dtype).is_floating


HEADS = (
    "the stream has a head for each task and the model one for all, which makes it "
    "class-incremental: build the model with heads=stream.heads, or take a stream with "
    'head="single"'
)
"""Of a stream with heads and a learner without."""


def positive_warning(
    names: Sequence[str], positive: str | None, metrics: Sequence[str]
) -> str | None:
    """A warning of which class metrics of two classes judge, where nobody chose it by name.

    Args:
        names: Of the classes by number; none where they have none.
        positive: The name that was chosen.
        metrics: Names of those that judge class 1.

    Returns:
        None where there is nothing to say.
    """
    if len(names) != 2 or positive is not None or not metrics:
        return None
    other, judged = names
    return (
        f"{' and '.join(metrics)} judge{'s' * (len(metrics) == 1)} the class {judged!r} as the "
        f"positive one, the second of two names: give the stream positive={other!r} to judge that, "
        f"or positive={judged!r}"
    )


WEIGHTLESS = (
    "the examples that were evaluated all weigh 0, so that the loss is a mean over none, NaN, by "
    "which no callback finds a best epoch: give some of them a sample_weight above 0"
)
"""Of an evaluation."""


def one_class_warning(heads: HeadMasks | None, outputs: int) -> str | None:
    """A warning that a softmax over one class is always 1, whose loss is 0 and moves no weight.

    Args:
        heads: Of the learner; None for a single head.
        outputs: Of the network.

    Returns:
        None where each softmax is over several classes.
    """
    nothing = "its softmax is always 1, its loss 0, and nothing is learned"
    if heads is None:
        return (
            f"the network has one output for one class: {nothing}; give it an output for each "
            "class, or compile with BinaryCrossentropy(from_logits=True) for two classes"
            if outputs == 1
            else None
        )
    alone = [task for task, classes in enumerate(heads.classes) if len(classes) == 1]
    if not alone or heads.mask != "own":
        return None
    return (
        f"the head of task {alone[0]} has one class: {nothing} there, and its accuracy says "
        "nothing; give each head two classes at least, or leave heads out"
    )


def earlier_steps_warning(steps: int) -> str:
    """A warning that a stream is learned by a learner that has learned some steps already."""
    return (
        f"the model has learned {steps} steps before, and continues from its weights and "
        "memory: build network, memory and model again for a run from the start"
    )


def _first_scale(network: keras.Model) -> float | None:
    """The factor of the layer that rescales a network's only input; None where there is none."""
    if len(network.inputs) != 1:
        return None
    first = next((layer for layer in network.layers if not isinstance(layer, _FORMS)), None)
    if not isinstance(first, keras.layers.Rescaling) or np.ndim(first.scale) or first.offset:
        return None
    return abs(float(first.scale))


# ---- networks and memories that two learners have ------------------------------------------------


class _Holder(NamedTuple):
    owner: "weakref.ref[keras.Model]"
    name: str


_HOLDERS: "weakref.WeakKeyDictionary[keras.layers.Layer, _Holder]" = weakref.WeakKeyDictionary()
"""Of each layer with weights that are trained, the learner that was compiled last."""


def _trained_layers(network: keras.Model) -> list[keras.layers.Layer]:
    return [layer for layer in layers_of(network, include_self=True) if layer.trainable_variables]


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


def warn_of_shared_memory(memory: Any) -> None:
    """Warn that a new learner has a memory that another one has written."""
    draws = getattr(memory, "draws", None)  # a custom memory may have none
    if memory.is_allocated and draws is not None and bool(np.any(draws.numpy())):
        LOGGER.warning(
            "the new learner has a %s that another one has used, whose examples it replays: build "
            "it a memory of its own for a run from the start",
            type(memory).__name__,
        )
