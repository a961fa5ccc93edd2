"""Tiny networks and data that the tests share."""

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.options.step_log import StepLog
from nccl_tf.records.checkpoints import assign_arrays

IMAGE_SHAPE = (4, 4, 1)
TASK_CLASSES = ((0, 1), (2, 3))


def tiny_network(
    num_classes: int = 4,
    dtype: str = "float32",
    seed: int = 0,
    input_dtype: str = "uint8",
    hidden: int = 8,
) -> keras.Model:
    """A dense network with one hidden layer on 4x4 images."""
    initializers = [keras.initializers.GlorotUniform(seed=seed + i) for i in range(2)]
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE, dtype=input_dtype),
            keras.layers.Rescaling(1 / 255, dtype=dtype),
            keras.layers.Flatten(dtype=dtype),
            keras.layers.Dense(hidden, "relu", kernel_initializer=initializers[0], dtype=dtype),
            keras.layers.Dense(num_classes, kernel_initializer=initializers[1], dtype=dtype),
        ]
    )


def tiny_experts(num_classes: int = 4, dtype: str = "float32") -> keras.Model:
    """At most four experts of few units on 4x4 images."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        return nccl_tf.mlp_experts(
            IMAGE_SHAPE, num_classes, widths=(8, 4), latent=2, samples=2, max_experts=4
        )
    finally:
        keras.config.set_dtype_policy(before)


def tiny_batches(task: int, count: int = 60, batch_size: int = 5, seed: int = 0):
    """A dataset of learnable 4x4 images of a task's two classes, in the form of our streams."""
    rng = np.random.default_rng((seed, task))
    labels = rng.choice(TASK_CLASSES[task], count).astype(np.int32)
    images = rng.integers(0, 60, (count, *IMAGE_SHAPE), dtype=np.uint8)
    images[np.arange(count), labels] = 255
    inputs = {"inputs": images, "task": np.full(count, task, np.int32)}
    weights = np.ones(count, np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels, weights))
    return dataset.batch(batch_size, drop_remainder=True)


def renewed(model, arrays):
    """A learner whose graphs are built, in a state that it had: cheaper than a new one.

    Args:
        model: The learner.
        arrays: Its `variables_to_arrays(model.state_variables)` then.
    """
    assign_arrays(model.state_variables, arrays)
    if (log := model.option(StepLog)) is not None:
        log.restore(StepLog(model.log_names, model.cumulative, log.every, 1).state())
    return model


def scalars(folder) -> dict[str, dict[int, float]]:
    """The values of the event files right below a folder, by tag and step."""
    from tensorflow.python.summary.summary_iterator import summary_iterator

    found: dict[str, dict[int, float]] = {}
    for path in sorted(folder.glob("events*")):
        for event in summary_iterator(str(path)):
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name == "scalars":
                    tensor = tf.make_ndarray(value.tensor)
                    found.setdefault(value.tag, {})[event.step] = float(tensor)
    return found
