"""Keras callbacks."""

from nccl_tf.callbacks.step_record import StepRecord
from nccl_tf.diagnostics.callback import ForgettingDiagnostics

__all__ = ["ForgettingDiagnostics", "StepRecord"]
