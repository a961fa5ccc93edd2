"""Stable A-GEM (Mirzadeh et al., NeurIPS 2020): A-GEM in the training regime of Stable SGD."""

from typing import Any

import keras

from nccl_tf.hyperparameters import REPLAY_RATE_DECAY
from nccl_tf.methods.agem import AGEM
from nccl_tf.methods.stable_training import StableTraining


@keras.saving.register_keras_serializable(package="nccl_tf")
class StableAGEM(StableTraining, AGEM):
    """A-GEM's projected step with a learning rate that falls from task to task."""

    def __init__(self, *args: Any, rate_decay: float = REPLAY_RATE_DECAY.default, **kwargs: Any):
        super().__init__(*args, rate_decay=rate_decay, **kwargs)
