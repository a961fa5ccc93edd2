"""Independent random generators for each purpose.

Every draw of a stream uses a generator keyed by the seed and its purpose, so that draws do not
affect each other: a seed gives the same stream for every method, batch size and order of use.
"""

import numpy as np

from nccl_tf.errors import checked_at_least

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
    ANGLE,
    TUNING_ANGLE,
    BLUR,
    TABLE_TEST,
    VALIDATION,
    OWN_TEST,
) = range(16)


def generator(seed: int, purpose: int, *key: int) -> np.random.Generator:
    """Create the generator of a draw.

    Args:
        seed: Seed of the run, an integer >= 0.
        purpose: One of this module's constants.
        key: Distinguishes draws of the same purpose (task, pass).

    Raises:
        UserError: The seed is not an integer >= 0.
    """
    seed = checked_at_least("seed", seed, 0)
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, *key))
    return np.random.Generator(np.random.PCG64(sequence))
