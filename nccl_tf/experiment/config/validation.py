"""The check alpha L < 1, with the sentence a user gets."""

from nccl_tf.errors import UserError


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
