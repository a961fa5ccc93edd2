"""A reservoir beside general examples, which take a fixed share of every draw."""

from typing import Any, Final

import keras
import tensorflow as tf

from nccl_tf.batch import Batch
from nccl_tf.errors import UserError
from nccl_tf.memories.memory import Memory, choose
from nccl_tf.rng import uniform_below


@keras.saving.register_keras_serializable(package="nccl_tf")
class MixedMemory(Memory):
    """Examples of a general kind that stay, and a reservoir of the stream.

    For fine-tuning with some of the old data mixed in: `learner.remember(...)`, before anything is
    learned, fills the general slots with a uniform sample of what it is given. What comes after it
    goes into the other slots, by reservoir sampling, and every draw has a fixed share of general
    examples. A part that is empty leaves its share of a draw out. Without `remember` the general
    examples are those of the first task that is learned.

    Args:
        capacity: Slots of both parts together.
        general: Slots of the general part.
        general_share: Of a draw that is general, in [0, 1], rounded to whole examples.
        example_shape: As for `Memory`, like the others.
        example_dtype: dtype of the stored inputs.
        seed: Seed of the draws.
        **kwargs: As for `Memory`.

    Raises:
        UserError: The general part is not below the capacity, or the share out of range.

    Example:

    ```python
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8, 1), np.uint8)
    memory = nccl_tf.MixedMemory(60, general=20, general_share=0.1)
    learner = nccl_tf.ExperienceReplay(nccl_tf.networks.mlp((8, 8, 1), 4), memory)
    learner.compile(keras.optimizers.SGD(0.1))
    learner.remember(images[:40], np.arange(40) % 2)  # general, only replayed
    learner.fit(images[40:], 2 + np.arange(40) % 2, verbose=0)
    ```
    """

    _owns_private_names = True
    general: Final[int]
    general_share: Final[float]

    def __init__(
        self,
        capacity: int,
        general: int,
        general_share: float = 0.1,
        example_shape: Any = None,
        example_dtype: Any = "uint8",
        seed: int = 0,
        **kwargs: Any,
    ):
        if not 0 < general < capacity:
            raise UserError(
                f"received general={general!r} of {capacity!r} slots, expected a number from 1 "
                "below the capacity"
            )
        if not 0 <= general_share <= 1:
            raise UserError(f"received general_share={general_share!r}, expected a share in [0, 1]")
        self.general, self.general_share = int(general), float(general_share)
        super().__init__(capacity, example_shape, example_dtype, seed, **kwargs)

    @property
    def reads_open_task(self) -> bool:
        return self.general_share < 1

    def make_state(self) -> None:
        self.seen_general = self.state("seen_general", (), "int64")
        self.seen = self.state("seen", (), "int64")
        self.is_closed = self.state("is_closed", (), "bool")

    def _counts(self) -> tuple[tf.Tensor, tf.Tensor]:
        """How many general examples, and how many others, can be read."""
        others = self.capacity - self.general
        return (
            tf.minimum(self.seen_general.value, self.general),
            tf.minimum(self.seen.value, others),
        )

    def readable_count(self) -> tf.Tensor:
        return tf.add_n(self._counts())

    def readable_slots(self, positions: tf.Tensor) -> tf.Tensor:
        count, _ = self._counts()
        return tf.where(positions < count, positions, positions - count + self.general)

    def draw(self, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        general = round(self.general_share * count)
        found = []
        for number, (stored, wanted) in enumerate(
            zip(self._counts(), (general, count - general), strict=True)
        ):
            if wanted:
                # Of its own seed: -1 - s is the seed of no other draw.
                positions, weights = choose(stored, wanted, seed if number else -1 - seed)
                found.append((positions + number * self.general, weights))
        slots, weights = (tf.concat(parts, 0) for parts in zip(*found, strict=True))
        return slots, weights

    def slots_for(self, batch: Batch) -> tf.Tensor:
        valid = tf.cast(batch.weights > 0, tf.int64)
        closed = self.is_closed.value
        seen = tf.where(closed, self.seen.value, self.seen_general.value)
        none, general, others = (
            tf.constant(count, tf.int64)
            for count in (0, self.general, self.capacity - self.general)
        )
        first, size = tf.where(closed, general, none), tf.where(closed, others, general)
        number = seen + tf.cumsum(valid)
        drawn = uniform_below(self.next_seed(), tf.maximum(number, 1))
        slots = first + tf.where(number <= size, number - 1, drawn)
        is_kept = (number <= size) | (drawn < size)
        added = tf.reduce_sum(valid)
        self.seen.value.assign_add(tf.where(closed, added, none))
        self.seen_general.value.assign_add(tf.where(closed, none, added))
        return tf.where(is_kept, slots, self.capacity)

    def close_task(self, task_id: int) -> None:
        self.is_closed.assign(True)
