"""The accuracy matrix of a 20-task run against the forward matrix products that it is made of, and
against what `--evaluate` leaves of it.

python -m benchmarks.evaluation
"""

import functools
import itertools
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.experiment.run.evaluation import Evaluation
from nccl_tf.streams.arrays import Examples

TASKS, TEST, SIDES = 20, 10_000, (784, 256, 256, 10)
CELLS = sum(min(i + 2, TASKS) for i in range(TASKS))


def matrices(count: int = TASKS, test: int = TEST) -> dict[str, Callable[[], None]]:
    """Calls that evaluate after every task as a run does, by its `--evaluate`.

    Args:
        count: Number of tasks.
        test: Test images of each.
    """
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, test).astype(np.int32)

    def task(number: int) -> nccl_tf.Task:
        images = random.integers(0, 256, (test, 28, 28, 1), dtype=np.uint8)
        part = Examples(images, labels)
        return nccl_tf.Task(number, tuple(range(10)), test, lambda: part, lambda: part)

    tasks = [task(number) for number in range(count)]
    learner = nccl_tf.Finetune(nccl_tf.networks.mlp((28, 28, 1), 10, hidden=(256, 256)))
    learner.compile(keras.optimizers.SGD(0.1))

    def run(evaluate: str) -> None:
        evaluation = Evaluation(learner, tasks, evaluate=evaluate)
        for i in range(count):
            evaluation.evaluate_after(i, lambda: None)

    return {name: functools.partial(run, name) for name in ("all", "every:5", "new")}


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
    # The products alone take both cores with two threads; an evaluation does with one too.
    rounds = rounds_of(__doc__, 5, threads=2)
    seconds = measure({**matrices(), "products": products()}, rounds)
    times = {name: 1e3 * value for name, value in seconds.items()}
    ratios: dict[str, tuple[float, float | None]] = {
        "all / products": (seconds["all"] / seconds["products"], 1.15),
        "every:5 / all": (seconds["every:5"] / seconds["all"], None),
        "new / all": (seconds["new"] / seconds["all"], None),
    }
    report("The accuracy matrix of 20 tasks (10,000 images, 784-256-256-10)", times, ratios)


if __name__ == "__main__":
    main()
