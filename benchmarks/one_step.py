"""Processor and wall time of a step of one method, for a comparison with another checkout.

python -m benchmarks.one_step METHOD [--network=dense|resnet] [--rounds=5] [--at_once=1]

For another checkout run this file on it: `PYTHONPATH=OTHER python benchmarks/one_step.py METHOD`.
A round is a fit of a task of random images beside a memory that holds an ended one; each operation
has one thread on the dense network, two on the reduced ResNet-18. Printed are medians of rounds.
"""

import argparse
import os
import statistics
import time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.columns import extras_of
from nccl_tf.memories.kinds import get_memory
from nccl_tf.streams.arrays import Examples

CLASSES, TASKS, BATCH = 10, 20, 10


def learner_of(method: str, shape: tuple[int, ...], network: keras.Model, **arguments: Any) -> Any:
    """A compiled learner with a memory of five slots a class and task, or of 500."""
    row = nccl_tf.METHODS[method]
    learner_class: Any = row.learner_class()
    memory: dict[str, Any] = {}
    if row.memory:
        extras = extras_of(learner_class.columns, CLASSES)
        memory["memory"] = get_memory(row.memory).build(
            capacity=500, slots=5 if row.memory == "ring" else None, rule="exact", seed=0,
            task_classes=[list(range(CLASSES))] * TASKS, example_shape=shape,
            **({"extras": extras} if extras else {}),
        )  # fmt: skip
    learner = learner_class(network, **memory, **arguments)
    learner.compile(keras.optimizers.SGD(0.03))
    return learner


def two_tasks(shape: tuple[int, ...], steps: int) -> list[nccl_tf.Task]:
    """Two tasks of the same random images, so many batches each."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (BATCH * steps, *shape), dtype=np.uint8)
    data = Examples(images, random.integers(0, CLASSES, len(images)).astype(np.int32))
    return [
        nccl_tf.Task(k, tuple(range(CLASSES)), len(images), lambda: data, lambda: data)
        for k in range(2)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("method")
    parser.add_argument("--network", choices=("dense", "resnet"), default="dense")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at_once", type=int, default=1, help="operations at a time")
    asked = parser.parse_args()
    is_dense = asked.network == "dense"
    tf.config.threading.set_inter_op_parallelism_threads(asked.at_once)
    tf.config.threading.set_intra_op_parallelism_threads(1 if is_dense else 2)
    keras.utils.set_random_seed(0)
    shape = (28, 28, 1) if is_dense else (32, 32, 3)
    make = nccl_tf.networks.mlp if is_dense else nccl_tf.networks.resnet18_reduced
    learner = learner_of(asked.method, shape, make(shape, CLASSES))
    steps = 1000 if is_dense else 50
    tasks = two_tasks(shape, steps)
    learner.fit(tasks[0], verbose=0)
    rounds = []
    for _ in range(1 + asked.rounds):  # the first one warms up
        processor, wall = time.process_time(), time.perf_counter()
        learner.fit(tasks[1].train_batches(BATCH), task_id=1, end_task=False, verbose=0)
        rounds.append((time.process_time() - processor, time.perf_counter() - wall))
    milliseconds = [
        1000 / steps * statistics.median(each) for each in zip(*rounds[1:], strict=True)
    ]
    print(f"{asked.method}: processor {milliseconds[0]:.3f} ms, wall {milliseconds[1]:.3f} ms")


if __name__ == "__main__":
    main()
