"""Random generators that depend on a seed and a purpose alone.

Every draw of a stream has a generator of its own, keyed by what it is for, so that no draw moves
another: the same seed gives the same stream whatever the method, the batch size or the order of
use.
"""

import numbers

import numpy as np

from nccl_tf.errors import UserError

(
    CLASS_ORDER,
    PERMUTATION,
    SUBSET,
    BATCH_ORDER,
    TUNING_PERMUTATION,
    TUNING_SUBSET,
    DIGITS_TEST,
    JOINT_ORDER,
    DIAGNOSTICS,
    HELD_OUT_IMAGES,
) = range(10)


def generator(seed: int, purpose: int, *key: int) -> np.random.Generator:
    """The generator of one draw.

    Args:
        seed: The run's seed, a whole number >= 0.
        purpose: One of this module's constants.
        key: What tells draws of one purpose apart (task, pass).

    Raises:
        UserError: The seed is not a whole number >= 0.
    """
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral) or seed < 0:
        raise UserError(f"seed={seed!r} is out of range: expected a whole number >= 0")
    sequence = np.random.SeedSequence(int(seed), spawn_key=(purpose, *key))
    return np.random.Generator(np.random.PCG64(sequence))
