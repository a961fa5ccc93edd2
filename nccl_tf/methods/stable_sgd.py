"""Stable SGD (Mirzadeh et al., NeurIPS 2020)."""

import keras

from nccl_tf.methods.finetune import Finetune
from nccl_tf.methods.stable_training import StableTraining


@keras.saving.register_keras_serializable(package="nccl_tf")
class StableSGD(StableTraining, Finetune):
    """x+ = x - eta_k g_J with a learning rate that falls from task to task; no memory."""
