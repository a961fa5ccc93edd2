"""MIR with gradient-based memory editing (Jin et al., NeurIPS 2021)."""

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.methods.memory_editing import MemoryEditing
from nccl_tf.methods.mir import MIR


@keras.saving.register_keras_serializable(package="nccl_tf")
class MIRGMED(MemoryEditing, MIR):
    """Replays what MIR retrieves, and edits a random batch of its own in the memory.

    That the edited batch is another one than the replayed one is the released code's choice for
    MIR + GMED ("mirr"); its edits show when it is retrieved later. Both are drawn from the ended
    tasks. Arguments and errors are those of `MemoryEditing` and `MIR`.
    """

    def edit_and_learn(self, batch: Batch) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        candidates = self.memory.read(self.candidates)
        slots, weights = self.memory.draw(self.memory_batch_size, self.memory.next_edit_seed())
        stored = self.memory.rows(slots, weights)
        images = self.under_xla(self.edited)(batch, stored, self.memory.ages_of(slots))
        logits, values, measured = self.replay_and_apply(batch, candidates)
        self.write_back(slots, stored, images, values[0])
        return logits, values, measured
