"""Seeds for initializers, derived from one seed."""

from collections.abc import Iterator

import numpy as np


def initializer_seeds(seed: int) -> Iterator[int]:
    """Endless seeds, all of them given by `seed`.

    One for each initializer: two Keras initializers with the same seed and shape draw the same
    numbers, and one without a seed would depend on the global state.
    """
    draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    while True:
        yield int(draws.integers(2**31))
