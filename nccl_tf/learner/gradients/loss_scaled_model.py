"""A task model that takes gradients at its optimizer's loss scale."""

from typing import Any

import keras
import tensorflow as tf

from nccl_tf.gradients import densified
from nccl_tf.learner.fitting.compile_checks import check_learns
from nccl_tf.learner.task_model import TaskModel


class LossScaledModel(TaskModel):
    """Gradients whose values are those of float32, whatever the loss scale of mixed_float16."""

    def gradients(
        self, tape: tf.GradientTape, loss: tf.Tensor, sources: Any = None, scale: Any = None
    ) -> list[tf.Tensor]:
        """Gradients of a loss that was taken times a loss scale, the scale undone.

        Args:
            tape: Has watched the sources.
            loss: The scaled loss.
            sources: What to differentiate by, a list; by default the trainable variables.
            scale: By default `self.loss_scale()`.
        """
        sources = self.trainable_variables if sources is None else sources
        check_learns(sources)
        # TensorFlow's zeros, `tf.UnconnectedGradients.ZERO`, know no dtype of Keras's variables.
        gradients = densified(
            [
                tf.zeros(source.shape, source.dtype) if gradient is None else gradient
                for gradient, source in zip(tape.gradient(loss, sources), sources, strict=True)
            ]
        )
        scale = self.loss_scale() if scale is None else scale
        return gradients if scale is None else [g / tf.cast(scale, g.dtype) for g in gradients]

    def scaled(self, loss: tf.Tensor) -> tf.Tensor:
        """The loss times the optimizer's loss scale, for mixed_float16."""
        return loss if self.loss_scale() is None else self.optimizer.scale_loss(loss)

    def loss_scale(self) -> tf.Tensor | None:
        """The optimizer's loss scale, or None where it has none."""
        scales = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)
        if not scales and self.optimizer.loss_scale_factor is None:
            return None
        return self.optimizer.scale_loss(tf.constant(1.0))
