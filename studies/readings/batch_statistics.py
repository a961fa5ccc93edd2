"""A plugin: NCCL that is tested with the batch statistics of each task's test images.

It trains as NCCL does, to the bit. At test, batch normalisation takes mean and variance of the
images that pass at once, all test images of a task, in place of its moving averages, which are
those of the newest stream.
"""

from typing import Any

import keras
import tensorflow as tf

import nccl_tf
from nccl_tf.methods.nccl import NCCL
from nccl_tf.methods.registry import METHODS


@keras.saving.register_keras_serializable(package="readings")
class BatchStatisticsNCCL(NCCL):
    """NCCL, with batch statistics at test too."""

    def outputs(self, inputs: Any, tasks: tf.Tensor | None, training: bool) -> tf.Tensor:
        """Logits [n, classes]; a pass at test leaves the moving averages as they were."""
        if training:
            return super().outputs(inputs, tasks, training)
        variables = self.network.non_trainable_variables
        before = [tf.identity(variable.value) for variable in variables]
        with tf.control_dependencies(before):
            logits = super().outputs(inputs, tasks, True)
        with tf.control_dependencies([logits]):
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)
        return tf.identity(logits)


for kind in ("ring", "reservoir"):
    row = METHODS[f"nccl_{kind}"]
    nccl_tf.register_method(
        nccl_tf.Method(
            name=f"nccl_{kind}_bs",
            title=f"{row.title}, batch statistics at test",
            learner=BatchStatisticsNCCL,
            memory=kind,
            learning_rates=row.learning_rates,
            hyperparameters=row.hyperparameters,
            alpha_l_below_one=True,
        )
    )
