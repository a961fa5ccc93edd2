"""Edits of memory inputs along the gradient of the next step's interference (GMED)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from nccl_tf.arguments.hyperparameters import Rows
from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.learner import stateless
from nccl_tf.learner.losses import weighted_mean
from nccl_tf.learner.replay import ReplayLearner
from nccl_tf.learner.step import Logits, Step
from nccl_tf.memories.edited_reservoir import EditedReservoirMemory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.mir import MIR
from nccl_tf.methods.rows import gmed as rows
from nccl_tf.variables import values_of


class MemoryEditing(ReplayLearner):
    r"""The part that gradient-based memory editing adds to a replay method.

    An image $x$ in memory is moved to $x + a \gamma^{\text{age}} \nabla_x [d(x) - b l(x; \theta)]$,
    with $d(x) = l(x; \theta_v) - l(x; \theta)$, $\theta_v = \theta - \alpha g_J$ and age the number
    of edits before (Jin et al., NeurIPS 2021, eq. 5). As in the released code, l is the mean over
    the edited batch, batch norm has that batch's statistics (`edit_mem_interfere` of
    ocl/ver_approx.py, github.com/INK-USC/GMED, never leaves train mode; `batch_norm="frozen"` fixes
    them), and pixels are not clipped. The released code adds b l; a negative b is that.

    The memory holds raw pixels, but a is meant for pixels as the network sees them, x scaled by s
    (1/255). In these units the step is the same when the raw gradient is taken times $a/s^2$; s is
    that of the network's first `keras.layers.Rescaling`, 1 without one.

    Args:
        network: Any Keras model from inputs to one logit per class, that takes float inputs.
        memory: An `EditedReservoirMemory`; stream inputs are converted to its dtype.
        edit_stride: a, step size of an edit, in squared scaled pixels per unit of loss.
        edit_regularization: b, weight of the loss that an edit keeps low.
        edit_decay: $\gamma$, factor on the stride for each earlier edit of an example.
        **kwargs: As for the replay method.

    Raises:
        UserError: A number is out of range, or the network's input is of integers.
    """

    memory_class = EditedReservoirMemory
    hyperparameters: ClassVar[Rows] = rows.NUMBERS
    cannot: ClassVar[Mapping[str, str]] = {
        **rows.ER_GMED.refuses,
        "memory_of_stream": "edits the inputs of what it stores, which is its way of learning",
    }

    def __init__(
        self,
        network: keras.Model,
        memory: EditedReservoirMemory,
        *,
        edit_stride: float = 0.1,
        edit_regularization: float = 0.01,
        edit_decay: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)
        self.edit_stride = edit_stride
        self.edit_regularization = edit_regularization
        self.edit_decay = edit_decay
        self._pixel_scale = pixel_scale(network)

    def update(self, batch: Batch) -> Step:
        return self.edit_and_learn(self._in_memory_dtype(batch))

    def edit_and_learn(self, batch: Batch) -> Step:
        """As `update`, with inputs in the memory's dtype."""
        raise NotImplementedError

    def store(self, batch: Batch, logits: Logits) -> None:
        super().store(self._in_memory_dtype(batch), logits)

    def edit_inputs(self, batch: Batch, stored: Batch, ages: tf.Tensor) -> tf.Tensor:
        """The inputs of memory examples after one edit.

        Args:
            batch: The stream batch J, for the virtual step.
            stored: Memory examples.
            ages: int64 [n], their earlier edits.
        """
        training = self.batch_norm != "frozen"
        ahead = stateless.virtual_step(self, batch, training=training)
        inputs = stored.inputs
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            after = stateless.losses(self, ahead, stored, training=training)
            here = values_of(self.network.trainable_variables)
            now = stateless.losses(self, here, stored, training=training)
            weight = tf.constant(1.0 + self.edit_regularization, now.dtype)
            goal = weighted_mean(after - weight * now, stored.weights)
        stride = tf.constant(self.edit_stride / self._pixel_scale**2, inputs.dtype)
        stride *= tf.constant(self.edit_decay, inputs.dtype) ** tf.cast(ages, inputs.dtype)
        stride = tf.reshape(stride, [-1] + [1] * (inputs.shape.rank - 1))
        return inputs + stride * tape.gradient(goal, inputs)

    def write_back(self, slots: tf.Tensor, stored: Batch, inputs: tf.Tensor, step: Step) -> None:
        """Put edited inputs into their slots, unless the applied step was skipped."""
        weights = tf.where(step.is_skipped, 0.0, stored.weights)
        self.memory.edit(slots, inputs, weights)

    def _in_memory_dtype(self, batch: Batch) -> Batch:
        return batch._replace(inputs=tf.cast(batch.inputs, self.memory.example_dtype))


def pixel_scale(network: keras.Model) -> float:
    """The factor that a network puts on raw pixels.

    Raises:
        UserError: The network's input is of integers, and would cut an edit to grey levels.
    """
    for tensor in getattr(network, "inputs", []):
        if not keras.backend.is_float_dtype(tensor.dtype):
            raise UserError(
                f"received a network whose input is of dtype {tensor.dtype}; edits of memory "
                "inputs need a float input: leave the dtype of its keras.Input out"
            )
    scales = [x.scale for x in network.layers if isinstance(x, keras.layers.Rescaling)]
    if scales and np.size(scales[0]) > 1:
        raise UserError(
            f"received a network whose Rescaling has {np.size(scales[0])} factors, expected one: "
            "an edit goes as far in every channel; rescale by one number"
        )
    return float(np.ravel(scales[0])[0]) if scales else 1.0


@keras.saving.register_keras_serializable(package="nccl_tf")
class ERGMED(MemoryEditing, ExperienceReplay):
    r"""Edits the memory batch, writes it back and replays it: $x^+ = x - \alpha (f_I + g_J)$.

    Arguments and errors are those of `MemoryEditing` and `ExperienceReplay`.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.EditedReservoirMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.ERGMED(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    def __init__(
        self,
        network: keras.Model,
        memory: EditedReservoirMemory,
        *,
        er_weighting: str = "sum_of_means",
        **kwargs: Any,
    ):
        super().__init__(network, memory, er_weighting=er_weighting, **kwargs)

    def edit_and_learn(self, batch: Batch) -> Step:
        slots, weights = self.memory.draw(self.memory_batch_size, self.memory.next_seed())
        replay = self.memory.rows(slots, weights)
        inputs = self.edit_inputs(batch, replay, self.memory.read_ages(slots))
        step = self.replay_and_apply(batch, replay._replace(inputs=inputs))
        self.write_back(slots, replay, inputs, step)
        return step


@keras.saving.register_keras_serializable(package="nccl_tf")
class MIRGMED(MemoryEditing, MIR):
    """Replays the examples that MIR retrieves, and edits a second, random memory batch.

    That the edited batch is another one than the replayed one is the released code's choice for
    MIR + GMED ("mirr"); its edits show when it is retrieved later. Both are drawn from the ended
    tasks. Arguments and errors are those of `MemoryEditing` and `MIR`.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.EditedReservoirMemory(50, (28, 28, 1))
        >>> learner = nccl_tf.MIRGMED(nccl_tf.networks.mlp((28, 28, 1), 10), memory)
    """

    def __init__(
        self,
        network: keras.Model,
        memory: EditedReservoirMemory,
        **kwargs: Any,
    ):
        super().__init__(network, memory, **kwargs)

    def edit_and_learn(self, batch: Batch) -> Step:
        candidates = self.memory.read(self.candidates)
        slots, weights = self.memory.draw(self.memory_batch_size, self.memory.next_edit_seed())
        stored = self.memory.rows(slots, weights)
        inputs = self.edit_inputs(batch, stored, self.memory.read_ages(slots))
        step = self.replay_and_apply(batch, candidates)
        self.write_back(slots, stored, inputs, step)
        return step
