"""Range checks of settings, with the sentence a user gets."""

import math

from nccl_tf.errors import UserError


def at_least(name: str, value: int, least: int, unit: str) -> int:
    """Return `value` if it is `least` or more.

    Raises:
        UserError: The value is below; the message names the flag.
    """
    if value < least:
        raise UserError(f"--{name}={value}: expected {least} or more {unit}")
    return value


def at_most(name: str, value: int, most: int, unit: str) -> int:
    """Return `value` if it is `most` or less.

    Raises:
        UserError: The value is above; the message names the flag.
    """
    if value > most:
        raise UserError(f"--{name}={value}: expected at most {most} {unit}")
    return value


def positive_rate(name: str, value: float) -> float:
    """Return `value` if it is a finite number above 0.

    Raises:
        UserError: The value is nan, infinite, 0 or negative; the message names the flag.
    """
    if not (math.isfinite(value) and value > 0):
        raise UserError(
            f"--{name}={value:g}: expected a finite number above 0, such as --{name}=0.1"
        )
    return value


def below_smoothness(alpha: float, smoothness: float, where: str) -> None:
    """Check that alpha L < 1, without which the paper's step sizes are not defined.

    Args:
        alpha: Step size alpha.
        smoothness: The constant L, 1/step size.
        where: What alpha is, for the message.

    Raises:
        UserError: alpha L is 1 or more.
    """
    if alpha * smoothness >= 1:
        raise UserError(
            f"{where} {alpha:g} times --smoothness={smoothness:g} is {alpha * smoothness:g}: "
            f"expected alpha L below 1; lower the rate or take --smoothness below {1 / alpha:g}"
        )
