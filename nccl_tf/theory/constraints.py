"""How often steps break the constraints of the reformulated problem (paper, eq. 12)."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Sequence = npt.NDArray[np.float64]


class Violations(NamedTuple):
    """Shares of steps, as fractions."""

    beta_not_below_alpha: float
    alpha_above_limit: float


def violations(alpha_h: Sequence, beta_h: Sequence, smoothness: float) -> Violations:
    """Shares of steps with beta_H >= alpha_H, and with alpha_H > 2/L.

    The problem demands 0 < beta_H < alpha_H <= 2/L. The algorithm keeps neither always (E14):
    beta_H = alpha_H at Lambda = 0, alpha_H is unbounded in interference, and beta_max may lie
    above alpha.

    Args:
        alpha_h: alpha_H of each step [T].
        beta_h: beta_H of each step [T].
        smoothness: L.
    """
    alpha_h, beta_h = np.asarray(alpha_h, float), np.asarray(beta_h, float)
    return Violations(float(np.mean(beta_h >= alpha_h)), float(np.mean(alpha_h > 2 / smoothness)))
