"""The overfitting term $B$ of one step (paper, section 4.2).

Vectors are flat float64 arrays [d]; step sizes, $L$ and results are floats. $F$ is the gradient of
the mean loss on all previous data $P$, $f_I$ that on the memory batch, and $e = f_I - F$ the
memory's error.
"""

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]


def inner_product(left: Vector, right: Vector) -> float:
    r"""$\langle \text{left}, \text{right} \rangle$."""
    # Faster than np.dot, which waits for its threads.
    return float(np.sum(left * right))


def overfitting(
    alpha_h: float,
    beta_h: float,
    full_gradient: Vector,
    memory_gradient: Vector,
    stream_gradient: Vector,
    smoothness: float,
) -> float:
    r"""$B = (L \alpha_H^2 - \alpha_H) \langle F, e \rangle + \beta_H \langle g_J, e \rangle$, in
    units of the loss.

    The sign of the second term is correct as printed in the paper (E4). $E[e] = 0$ over memories at
    a fixed $x$ does not imply $E[B] = 0$, because $\alpha_H$ and $\beta_H$ depend on the memory
    batch (E8): $B$ has to be measured.

    Args:
        alpha_h: Step size on $f_I$.
        beta_h: Step size on $g_J$.
        full_gradient: $F$.
        memory_gradient: $f_I$.
        stream_gradient: $g_J$.
        smoothness: $L$.
    """
    error = memory_gradient - full_gradient
    along_full = (smoothness * alpha_h**2 - alpha_h) * inner_product(full_gradient, error)
    return along_full + beta_h * inner_product(stream_gradient, error)
