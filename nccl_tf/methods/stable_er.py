"""Stable ER (Mirzadeh et al., NeurIPS 2020): replay in the training regime of Stable SGD."""

from typing import Any

import keras

from nccl_tf.hyperparameters import REPLAY_RATE_DECAY
from nccl_tf.methods.er import ExperienceReplay
from nccl_tf.methods.stable_training import StableTraining


@keras.saving.register_keras_serializable(package="nccl_tf")
class StableER(StableTraining, ExperienceReplay):
    """Experience replay with a learning rate that falls from task to task."""

    def __init__(self, *args: Any, rate_decay: float = REPLAY_RATE_DECAY.default, **kwargs: Any):
        super().__init__(*args, rate_decay=rate_decay, **kwargs)
