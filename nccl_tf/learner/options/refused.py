"""Options that a method has no meaning for."""

from typing import Any

from nccl_tf.errors import UserError


def check_refused(learner: Any, name: str, value: Any) -> None:
    """Refuse an option that is set, where the learner's method says why it means nothing to it.

    Args:
        learner: With `refuses`.
        name: Of the option.
        value: What it was set to.

    Raises:
        UserError: The method refuses it.
    """
    reason = learner.refuses.get(name)
    if reason:
        raise UserError(
            f"received {name}={value!r}, but {type(learner).__name__} {reason}: leave {name} out"
        )
