"""The accuracy matrix of a 20-task run against the forward matrix products that it is made of.

python -m benchmarks.evaluation
"""

import itertools

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.streams.arrays import Examples

TASKS, TEST, SIDES = 20, 10_000, (784, 256, 256, 10)
CELLS = sum(min(i + 2, TASKS) for i in range(TASKS))


def matrix():
    """A call that evaluates after every task as a run does."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, TEST).astype(np.int32)

    def task(number: int) -> nccl_tf.Task:
        images = random.integers(0, 256, (TEST, 28, 28, 1), dtype=np.uint8)
        part = Examples(images, labels)
        return nccl_tf.Task(number, tuple(range(10)), TEST, lambda: part, lambda: part)

    tasks = [task(number) for number in range(TASKS)]
    learner = nccl_tf.Finetune(nccl_tf.networks.mlp((28, 28, 1), 10, hidden=(256, 256)))
    learner.compile(keras.optimizers.SGD(0.1))
    evaluation = Evaluation(learner, tasks)
    return lambda: [evaluation.evaluate_after(i, lambda: None) for i in range(TASKS)]


def products():
    """A call with as many forward products of the same shapes."""
    random = np.random.default_rng(0)
    images = tf.constant(random.random((TEST, SIDES[0]), np.float32))
    kernels = [
        tf.Variable(random.standard_normal(shape).astype(np.float32))
        for shape in itertools.pairwise(SIDES)
    ]

    @tf.function
    def forward() -> tf.Tensor:
        x = images
        for kernel in kernels:
            x = tf.matmul(x, kernel)
        return x

    return lambda: [forward() for _ in range(CELLS)]


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 5)
    seconds = measure({"matrix": matrix(), "products": products()}, rounds)
    times = {name: 1e3 * value / CELLS for name, value in seconds.items()}
    ratios = {"matrix / products": (seconds["matrix"] / seconds["products"], 1.3)}
    report("A cell of the accuracy matrix (10,000 images, 784-256-256-10)", times, ratios)


if __name__ == "__main__":
    main()
