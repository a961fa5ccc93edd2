"""A step of NCCL against its floor: its matrix products and its passes over the weights alone.

python -m benchmarks.floor
"""

import itertools

import tensorflow as tf

import nccl_tf
from benchmarks.dense_step import BATCH, CLASSES, HIDDEN, RATE, STEPS, side
from benchmarks.side_by_side import measure, report, rounds_of

SIDES = (784, *HIDDEN, CLASSES)
ROWS = 2 * BATCH


def repeated(operation):
    """A call that does an operation STEPS times in one graph, one after the other."""

    @tf.function
    def loop() -> None:
        for _ in tf.range(STEPS):
            operation()

    return loop


def products():
    """All matrix products of a step: forward, by the inputs of all layers but the first, by W."""
    sizes = list(itertools.pairwise(SIDES))
    kernels = [tf.Variable(tf.random.normal(size)) for size in sizes]
    inputs = [tf.Variable(tf.random.normal([ROWS, size[0]])) for size in sizes]
    slopes = [tf.Variable(tf.random.normal([ROWS, size[1]])) for size in sizes]
    forward = [tf.Variable(tf.zeros([ROWS, size[1]])) for size in sizes]
    backward = [tf.Variable(tf.zeros([ROWS, size[0]])) for size in sizes]
    by_kernel = [tf.Variable(tf.zeros(size)) for size in sizes]

    def operation() -> None:
        for k, kernel in enumerate(kernels):
            forward[k].assign(tf.matmul(inputs[k], kernel))
            by_kernel[k].assign(tf.matmul(inputs[k], slopes[k], transpose_a=True))
            if k:
                backward[k].assign(tf.matmul(slopes[k], kernel, transpose_b=True))

    return repeated(operation)


def descent():
    """x <- x - u for all kernels: they and an update are read, and they are written."""
    sizes = list(itertools.pairwise(SIDES))
    kernels = [tf.Variable(tf.random.normal(size)) for size in sizes]
    updates = [tf.Variable(RATE * tf.random.normal(size)) for size in sizes]

    def operation() -> None:
        for kernel, update in zip(kernels, updates, strict=True):
            kernel.assign_sub(update)

    return repeated(operation)


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 9)
    sides = {
        "nccl_ring": side(nccl_tf.NCCL),
        "matrix products": products(),
        "update of the weights": descent(),
    }
    seconds = measure(sides, rounds)
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    floor = seconds["matrix products"] + seconds["update of the weights"]
    weights = sum(a * b for a, b in itertools.pairwise(SIDES))
    multiplied = ROWS * (3 * weights - SIDES[0] * SIDES[1])
    times["floor"] = 1e3 * floor / STEPS
    print(f"{2e-9 * multiplied * STEPS / seconds['matrix products']:.0f} GFLOP/s in the products")
    print(f"{12e-9 * weights * STEPS / seconds['update of the weights']:.0f} GB/s in the update")
    ratios = {"nccl_ring / floor": (seconds["nccl_ring"] / floor, None)}
    report("A step of a 784-256-256-10 network and its floor", times, ratios)


if __name__ == "__main__":
    main()
