"""The short-term memory of CN-DPM: new examples, collected until they train an expert."""

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.memories.memory import Memory


@keras.saving.register_keras_serializable(package="nccl_tf")
class ShortTermMemory(Memory):
    """A buffer that stores examples in order until it is full, and is cleared all at once.

    Examples that arrive while it is full are dropped.

    Arguments and errors are those of `Memory`.

    Example:
        >>> import nccl_tf
        >>> memory = nccl_tf.ShortTermMemory(50)
    """

    def make_state(self) -> None:
        """Make the counter of stored examples."""
        self.stored = self.state("stored", (), "int64")

    @property
    def reads_open_task(self) -> bool:
        """False: once it is full, it takes nothing of a task that comes."""
        return False

    def readable_count(self) -> tf.Tensor:
        """int64 scalar: number of stored examples."""
        return self.stored.value

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        """int64 [n]: the positions themselves, because examples fill the slots in order."""
        return positions

    def slots_for(self, batch: Batch) -> tf.Tensor:
        """int64 [n]: the next free slots; `capacity` once the memory is full."""
        valid = tf.cast(batch.weights > 0, tf.int64)
        number = self.stored.value + tf.cumsum(valid)
        self.stored.assign(tf.minimum(number[-1], self.capacity))
        return tf.minimum(number - 1, self.capacity)

    def clear(self) -> None:
        """Remove all examples."""
        self.stored.assign(0)
