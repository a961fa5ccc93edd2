"""A step with 20,000 CIFAR images in memory against one with 200, with XLA and without.

python -m benchmarks.memory_capacity
"""

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import measure, report, rounds_of

IMAGE_SHAPE = (32, 32, 3)
STEPS = 100
TARGET = 1.05


def side(capacity: int, jit_compile: bool):
    """A call that fits STEPS steps of er_reservoir on a dense network with a full memory."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (10 * STEPS, *IMAGE_SHAPE), dtype=np.uint8)
    labels = random.integers(0, 10, 10 * STEPS).astype(np.int32)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).batch(10, drop_remainder=True)
    data = data.cache()
    network = nccl_tf.networks.mlp(IMAGE_SHAPE, 10, hidden=(64,))
    memory = nccl_tf.ReservoirMemory(capacity, IMAGE_SHAPE)
    memory.seen.assign(capacity)
    learner = nccl_tf.ExperienceReplay(network, memory)
    learner.compile(keras.optimizers.SGD(0.01), steps_per_execution=50, jit_compile=jit_compile)
    return lambda: learner.fit(data, verbose=0, end_task=False)


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 7)
    times, ratios = {}, {}
    for compiler, jit_compile in (("plain graph", False), ("XLA", True)):
        sides = {n: side(n, jit_compile) for n in (200, 20_000)}
        seconds = measure(sides, rounds)
        for capacity, value in seconds.items():
            times[f"{compiler}, {capacity} slots"] = 1e3 * value / STEPS
        ratios[f"{compiler}, 20,000 to 200 slots"] = (seconds[20_000] / seconds[200], TARGET)
    report("Step time and memory capacity (er_reservoir, 32x32x3 images)", times, ratios)


if __name__ == "__main__":
    main()
