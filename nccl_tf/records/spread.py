"""Mean and deviation of runs: the one definition for tables, pages, pictures, CSV and studies."""

import math
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """The mean of values and how far they lie from it.

    Attributes:
        mean: Their mean, a float or float64 [...].
        std: Their population standard deviation (ddof 0), which the paper and its code base give;
            of n values the sample one (ddof 1) is larger by the square root of n/(n - 1). 0 of one
            value.
        size: Their number.
    """

    mean: Any
    std: Any
    size: int

    @property
    def error(self) -> Any:
        """The standard error of the mean: the sample deviation over the square root of `size`.

        nan of fewer than two values.
        """
        return self.std / (self.size - 1) ** 0.5 if self.size > 1 else math.nan * self.std


def spread(values: Any) -> Spread:
    """The spread of values over their first axis, in float64, nan without any.

    Args:
        values: [runs, ...]; None and nan make the result nan.

    Example:

    ```python
    from nccl_tf.records.spread import spread

    mean, std, size = spread([0.8, 0.6])
    mean  # 0.7
    std  # 0.1
    ```
    """
    # Imported late: who shows one run needs no NumPy.
    import numpy as np

    array = np.asarray(values, np.float64)
    if not len(array):
        return Spread(math.nan, math.nan, 0)
    mean, std = array.mean(0), array.std(0)
    if array.ndim == 1:
        mean, std = float(mean), float(std)
    return Spread(mean, std, len(array))
