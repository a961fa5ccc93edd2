"""What `compile` cannot take, said in a sentence where Keras fails in another place."""

from collections.abc import Sequence
from typing import Any

import keras

from nccl_tf.errors import UserError


def check_compile(optimizer: Any, metrics: Any) -> None:
    """Check the form of an optimizer and of metrics.

    Args:
        optimizer: As `compile` received it.
        metrics: As `compile` received them.

    Raises:
        UserError: The optimizer is None or a class, or the metrics are no list.
    """
    if optimizer is None or isinstance(optimizer, type):
        name = "None" if optimizer is None else f"the class {optimizer.__name__}"
        raise UserError(
            f"received {name} as optimizer, expected an object, such as keras.optimizers.SGD(0.1), "
            "or the name of one"
        )
    is_list = isinstance(metrics, Sequence) and not isinstance(metrics, str)
    if metrics is not None and not is_list:
        one = repr(metrics) if isinstance(metrics, (str, dict)) else type(metrics).__name__
        raise UserError(
            f"received metrics={one}, expected a list for the one output of the network, such as "
            'metrics=["accuracy"]'
        )


def known_metric(name: str) -> Any:
    """What Keras has under the name of a metric: an object or a function.

    Raises:
        UserError: It has nothing.
    """
    try:
        return keras.metrics.get(name)
    except ValueError as error:
        raise UserError(
            f"received the metric {name!r}, which Keras does not have: expected one such as "
            '"accuracy" or "mae", or a keras.metrics object'
        ) from error


def check_learns(parts: Sequence[Any]) -> None:
    """Check that there is a weight to learn.

    Args:
        parts: The trainable variables, or their gradients.

    Raises:
        UserError: There is none.
    """
    if not parts:
        raise UserError(
            "received a network without trainable weights, from which nothing is learned: set "
            "trainable = True on the layers that are to learn, and compile again"
        )
