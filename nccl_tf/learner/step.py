"""The result of one training step."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from nccl_tf.errors import UserError
from nccl_tf.gradients import (
    Products,
    inner_product,
    products_by_variable,
    squared_norm,
    weighted_sum,
)

Logs = dict[str, tf.Tensor]
"""Scalars by name, among `Learner.log_names`; a step leaves out those it does not measure."""


class Logits(NamedTuple):
    """The network's outputs for a batch.

    Attributes:
        raw: [n, classes], before any mask.
        masked: [n, classes] in float32 or float64, -1e9 where the training loss sees no logit.
    """

    raw: tf.Tensor
    masked: tf.Tensor


class ReplayLogits(NamedTuple):
    """The network's outputs for the batches of a step.

    Attributes:
        stream: Of the stream batch.
        memory: Of each memory batch.
    """

    stream: Logits
    memory: tuple[Logits, ...]


class Step(NamedTuple):
    """The result of one training step.

    Attributes:
        gradients: A tensor per trainable variable, as the optimizer receives them; empty once the
            step has been applied.
        logits: Of the stream batch.
        logs: Scalars by name, with "loss"; after the step has been applied, every name of
            `Learner.log_names` in float32, NaN where the step did not measure it and for a step
            that was skipped.
        state: The new values of the method's own variables, see `Learner.apply_step`.
        values: Of an applied step the logs as one tensor, float32 [log_names]; None where a method
            puts its logs together itself.
        accepted: Of an applied step whether it was, bool scalar; None where a method puts its logs
            together itself.
    """

    gradients: Sequence[tf.Tensor]
    logits: Logits
    logs: Logs
    state: Any = ()
    values: tf.Tensor | None = None
    accepted: tf.Tensor | None = None

    def with_all_logs(self, names: Sequence[str]) -> "Step":
        """This step with a log by every name, float32; NaN where it has none.

        Args:
            names: As `Learner.log_names`.

        Raises:
            UserError: It has a log of another name, or none of the loss.
        """
        logs_given = {**self.logs, "loss": self.loss}
        if unknown := sorted(set(logs_given) - set(names)):
            raise UserError(
                f"received the logs {unknown} beside {list(names)}, which would be dropped: "
                "expected names of log_names; add them to the class's log_names, or leave them out"
            )
        logs = {name: tf.cast(logs_given.get(name, math.nan), tf.float32) for name in names}
        return self._replace(gradients=list(self.gradients), logs=logs)

    @property
    def loss(self) -> tf.Tensor:
        """The log "loss", a scalar.

        Raises:
            UserError: There is none.
        """
        if "loss" not in self.logs:
            raise UserError(
                f"received a step with the logs {sorted(self.logs)}, expected 'loss' among them, "
                "which says whether a step is finite: return {'loss': loss, ...} as its logs"
            )
        return self.logs["loss"]

    @property
    def is_learned(self) -> tf.Tensor:
        """bool scalar: whether an applied step was not skipped."""
        return tf.math.is_finite(self.logs["loss"]) if self.accepted is None else self.accepted

    def stacked_logs(self) -> tf.Tensor:
        """The logs of an applied step as one tensor, float32 [log_names]."""
        return tf.stack(list(self.logs.values())) if self.values is None else self.values

    @property
    def is_skipped(self) -> tf.Tensor:
        """bool scalar: whether an applied step was skipped."""
        return tf.logical_not(self.is_learned)


def checked_applied(step: Any, names: Sequence[str]) -> Step:
    """The step that a method's `update` returned, with a log by every name, in order.

    Args:
        step: What it returned.
        names: As `Learner.log_names`.

    Raises:
        UserError: It is no step, or nobody has applied it.
    """
    if not isinstance(step, Step):
        raise UserError(
            f"received a {type(step).__name__} from update, expected a nccl_tf.Step: return what "
            "self.learn_and_apply(self.learn, batch) returns"
        )
    if len(step.gradients):
        raise UserError(
            "received a step with gradients from update, which nobody has applied, so that nothing "
            "would be learned: return what self.learn_and_apply(self.learn, batch) returns"
        )
    return step.with_all_logs(names) if step.values is None else step


class GradientPair:
    """f_I and g_J at the same weights, a tensor per trainable variable each.

    Args:
        memory: f_I.
        stream: g_J.
        losses: "loss", the mean loss on the stream batch without regularisation, and "memory_loss".
        logits: Of the stream batch.
    """

    def __init__(
        self,
        memory: list[tf.Tensor],
        stream: list[tf.Tensor],
        losses: dict[str, tf.Tensor],
        logits: Logits,
    ):
        self._memory, self._stream = memory, stream
        self.losses, self.logits = losses, logits

    @property
    def memory(self) -> list[tf.Tensor]:
        """f_I, a tensor per trainable variable."""
        return self._memory

    @property
    def stream(self) -> list[tf.Tensor]:
        """g_J, a tensor per trainable variable."""
        return self._stream

    def by_variable(self) -> "PairByVariable":
        """The same gradients, with products and weights of each variable by itself."""
        return PairByVariable(self.memory, self.stream, self.losses, self.logits)

    def products(self) -> Products:
        r"""$\Lambda = \langle f_I, g_J \rangle$, $\|f_I\|^2$ and $\|g_J\|^2$."""
        return Products(
            inner_product(self.memory, self.stream),
            squared_norm(self.memory),
            squared_norm(self.stream),
        )

    def combined(self, memory_weight: tf.Tensor, stream_weight: tf.Tensor) -> list[tf.Tensor]:
        """memory_weight f_I + stream_weight g_J, a tensor per trainable variable."""
        return weighted_sum(memory_weight, self.memory, stream_weight, self.stream)


class PairByVariable(GradientPair):
    """f_I and g_J, of which each variable has products and weights of its own, [variables]."""

    def products(self) -> Products:
        return products_by_variable(self.memory, self.stream)

    def combined(self, memory_weight: tf.Tensor, stream_weight: tf.Tensor) -> list[tf.Tensor]:
        weights = map(tf.unstack, (memory_weight, stream_weight))
        return [
            weighted_sum(a, [f], b, [g])[0]
            for a, b, f, g in zip(*weights, self.memory, self.stream, strict=True)
        ]
