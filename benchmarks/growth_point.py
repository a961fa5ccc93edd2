"""One point of `benchmarks.growth`, in a process of its own, on one thread.

python -m benchmarks.growth_point AXIS CURVE VALUE
"""
# ruff: noqa: E402

import json
import os
import resource
import sys
import time
from collections.abc import Callable

for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import keras
import numpy as np

import nccl_tf
from benchmarks.evaluation import matrices
from benchmarks.last_task import examples, fitted, full_ring

SHAPE, CLASSES, WIDTH, BATCH, TASKS = (28, 28, 1), 10, 256, 10, 20
METHODS = {"ER": nccl_tf.ExperienceReplay, "NCCL": nccl_tf.NCCL, "GEM": nccl_tf.GEM}
ROUNDS = 5
SLOTS = 6  # 19 tasks of ten classes then fill a memory batch of 1,024
TEST_IMAGES = 250


def steps_for(curve: str, tasks: int, width: int, batch: int) -> int:
    """Steps in one call: fewer where one takes longer."""
    past = tasks if curve == "GEM" else 1
    size = max(1.0, (width / WIDTH) ** 2) * max(1.0, batch / BATCH) * past
    return max(4, round(200 / size))


def step(curve: str, *, slots: int = 0, tasks: int = TASKS, width: int = WIDTH, batch: int = BATCH):
    """A call of some steps, and their number.

    Args:
        curve: Name of the method.
        slots: Of a reservoir, which is full; 0 for a ring with six for each class of each task.
        tasks: The last of which is learned.
        width: Of both hidden layers.
        batch: Examples of the stream, and of the memory, in a step.
    """
    heads, steps = [range(CLASSES)] * tasks, steps_for(curve, tasks, width, batch)
    if slots:
        memory = nccl_tf.ReservoirMemory(slots, SHAPE)
        memory.seen.assign(slots)
    else:
        memory = full_ring(heads, SHAPE, SLOTS)
    network = nccl_tf.networks.mlp(SHAPE, CLASSES, hidden=(width, width), seed=0)
    size = {} if curve == "GEM" else {"memory_batch_size": batch}
    learner = METHODS[curve](network, memory, **size)
    learner.compile(keras.optimizers.SGD(0.01), steps_per_execution=steps)
    return fitted(learner, examples(steps, SHAPE, heads[-1], batch), heads, batch), steps


def evaluation(curve: str, *, tasks: int) -> tuple[Callable[[], None], int]:
    """A call that makes the accuracy matrix of so many tasks, with a choice of `--evaluate`."""
    return matrices(tasks, TEST_IMAGES)[curve], 1


AXES = {
    "slots": step, "tasks": step, "width": step, "batch": step, "evaluation": evaluation,
}  # fmt: skip


def peak() -> int:
    """The most resident bytes of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def framework() -> None:
    """A compiled step of a network of one neuron, so that its memory is none of a point's."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros((1, 1)), np.zeros((1, 1)), verbose=0)


def main() -> None:
    """Measure and print a line of JSON."""
    axis, curve, value = sys.argv[1], sys.argv[2], int(sys.argv[3])
    framework()
    before = peak()
    name = "tasks" if axis == "evaluation" else axis
    call, count = AXES[axis](curve, **{name: value})
    call()
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
    print(json.dumps({"milliseconds": 1e3 * min(seconds) / count, "bytes": peak() - before}))


if __name__ == "__main__":
    main()
