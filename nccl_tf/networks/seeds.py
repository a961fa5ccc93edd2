"""Seeds for initializers and dropout, derived from one seed."""

from collections.abc import Iterator

import numpy as np

_DROPOUT = 1


def dropout_seeds(seed: int) -> Iterator[int]:
    """Endless seeds for dropout layers, apart from the initializers' seeds.

    So the weights do not depend on whether a network has dropout.
    """
    return _seeds([seed, _DROPOUT])


def initializer_seeds(seed: int) -> Iterator[int]:
    """Endless seeds, all of them given by `seed`.

    One for each initializer: two Keras initializers with the same seed and shape draw the same
    numbers, and one without a seed would depend on the global state.
    """
    return _seeds(seed)


def _seeds(entropy: int | list[int]) -> Iterator[int]:
    draws = np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))
    while True:
        yield int(draws.integers(2**31))
