"""Experience replay with gradient-based memory editing (Jin et al., NeurIPS 2021)."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.edited_reservoir import EditedReservoirMemory
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.memory_editing import MemoryEditing


@keras.saving.register_keras_serializable(package="nccl_tf")
class ERGMED(MemoryEditing, ExperienceReplay):
    """Edits the memory batch, writes it back and replays it: x+ = x - alpha (f_I + g_J).

    Arguments and errors are those of `MemoryEditing` and `ExperienceReplay`.
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

    def edit_and_learn(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        slots, weights = self.memory.draw(self.memory_batch_size, self.memory.next_seed())
        replay = self.memory.rows(slots, weights)
        images = self.under_xla(self.edited)(batch, replay, self.memory.ages_of(slots))
        logits, values, measured = self.replay_and_apply(batch, replay._replace(images=images))
        self.write_back(slots, replay, images, values[0])
        return logits, values, measured
