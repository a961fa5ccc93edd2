"""What a record tells of a trained learner and of the machine."""

import resource
import sys
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from nccl_tf.experiment.checkpoints import state_sha256
from nccl_tf.experiment.devices import devices_in_words

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def measured_of(
    learner: keras.Model, rates: Sequence[float], steps: Sequence[int]
) -> dict[str, Any]:
    """Counts, the hash of the state, and the machine, for `records.make_record`.

    Args:
        learner: The learner at the end of its run.
        rates: The learning rate of each task.
        steps: Steps of each task.
    """
    return {
        "learning_rates": list(rates),
        "parameters": sum(int(np.prod(v.shape)) for v in learner.trainable_variables),
        "steps": sum(steps),
        "task_steps": list(steps),
        "state_sha256": state_sha256(learner.state_variables()),
        "skipped_steps": int(learner.skipped.numpy()),
        "device": devices_in_words(),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
    }
