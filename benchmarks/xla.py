"""XLA beside plain graphs: time of a step of NCCL. `python -m benchmarks.xla`."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import measure, report, rounds_of

CASES = {
    "dense, 28x28x1": ("mlp", (28, 28, 1), 10, 200),
    "reduced ResNet-18, 32x32x3": ("resnet18_reduced", (32, 32, 3), 100, 4),
}
"""Network, shape of the images, classes, and steps in one call."""


def side(network: str, shape: tuple[int, ...], classes: int, steps: int, xla: bool) -> Callable:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (steps, 10, *shape), dtype=np.uint8)
    labels = random.integers(0, classes, (steps, 10)).astype(np.int32)
    data = tf.data.Dataset.from_tensor_slices((images, labels)).cache()
    memory = nccl_tf.ReservoirMemory(1000, shape)
    learner = nccl_tf.NCCL(getattr(nccl_tf.networks, network)(shape, classes), memory)
    learner.compile(keras.optimizers.SGD(0.01), jit_compile=xla, steps_per_execution=steps)

    def call() -> None:
        learner.fit(data, shuffle=False, verbose=0, end_task=False)

    return call


def main() -> None:
    rounds = rounds_of(__doc__, 5, threads=2)
    for title, (network, shape, classes, steps) in CASES.items():
        sides = {
            name: side(network, shape, classes, steps, xla)
            for name, xla in (("plain", False), ("XLA", True))
        }
        seconds = measure(sides, rounds)
        milliseconds = {name: 1000 * value / steps for name, value in seconds.items()}
        ratio = seconds["XLA"] / seconds["plain"]
        report(title, milliseconds, {"XLA over plain": (ratio, None)})


if __name__ == "__main__":
    main()
