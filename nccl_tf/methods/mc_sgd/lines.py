"""The gradient of a loss along a line between weights (Mirzadeh et al., ICLR 2021)."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from nccl_tf.gradients import lerp
from nccl_tf.learner.gradients.functional import sgd_update

Weights = list[tf.Tensor]


def line_gradient(
    gradient: Callable[[Weights], Weights],
    start: Weights,
    end: Weights,
    points: int,
    scaled: bool,
) -> Weights:
    r"""Derivative by `end` of the mean loss over evenly spread points of the line from `start`.

    With $w_s = \text{start} + s (\text{end} - \text{start})$ it is the mean of $s \nabla L(w_s)$
    over $s$ in $S$.

    Args:
        gradient: $\nabla L$ at given weights.
        start: A tensor per weight.
        end: Tensors of the same shapes.
        points: Size of S on [0, 1]; one point is $s = 1$.
        scaled: Whether the factor s is taken; the authors' code leaves it out (`get_line_loss` in
            core/mode_connectivity.py of github.com/imirzadeh/CL-LinearModeConnectivity, where the
            gradients at all points are summed).
    """
    fractions = np.linspace(0, 1, points) if points > 1 else np.ones(1)
    if scaled:
        fractions = fractions[fractions > 0]  # The point s = 0 adds nothing.
    table = tf.constant(fractions, end[0].dtype)

    def add_point(i: tf.Tensor, total: Weights) -> tuple[tf.Tensor, Weights]:
        fraction = table[i]
        here = gradient(lerp(start, end, fraction))
        weight = fraction / points if scaled else tf.constant(1 / points, table.dtype)
        return i + 1, sgd_update(total, here, -weight)

    zeros = [tf.zeros_like(e) for e in end]
    return tf.while_loop(lambda i, _: i < len(fractions), add_point, (0, zeros))[1]
