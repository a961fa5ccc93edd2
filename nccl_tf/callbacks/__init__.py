"""Keras callbacks of the library."""

from nccl_tf.callbacks.forgetting import ForgettingDiagnostics
from nccl_tf.callbacks.step_record import StepRecord

__all__ = ["ForgettingDiagnostics", "StepRecord"]
