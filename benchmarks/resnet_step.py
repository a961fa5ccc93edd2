"""A step of NCCL on the reduced ResNet-18 against one of experience replay, and both in PyTorch.

pip install torch==2.13.0, then python -m benchmarks.resnet_step
"""

import argparse

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from benchmarks.resnet_torch import TorchStep
from benchmarks.side_by_side import measure, report
from nccl_tf.batch import Batch
from nccl_tf.streams.examples import Examples

IMAGE_SHAPE, CLASSES, BATCH = (32, 32, 3), 100, 10
TASKS, SLOTS, STEPS = 17, 5, 10
RATE = 0.03
HEADS = [range(5 * k, 5 * k + 5) for k in range(TASKS)]


def examples() -> Examples:
    """Random images and labels of the last task."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (BATCH * STEPS, *IMAGE_SHAPE), dtype=np.uint8)
    return Examples(images, random.choice(HEADS[-1], BATCH * STEPS).astype(np.int32))


def full_ring() -> nccl_tf.RingMemory:
    """A ring of which all tasks but the last have ended."""
    memory = nccl_tf.RingMemory(SLOTS, HEADS, IMAGE_SHAPE)
    images = tf.constant(examples().images[: 5 * SLOTS])
    for task in range(TASKS - 1):
        labels = tf.constant(np.repeat(np.array(HEADS[task], np.int32), SLOTS))
        tasks, ones = tf.fill([len(labels)], task), tf.ones([len(labels)])
        memory.write(Batch(images, labels, tasks, ones))
        memory.close_task(task)
    return memory


def fitted(method):
    """A call that fits STEPS steps of the last task."""
    network = nccl_tf.networks.resnet18_reduced(IMAGE_SHAPE, CLASSES, seed=0)
    learner = method(network, full_ring(), heads=HEADS)
    learner.compile(keras.optimizers.SGD(RATE))
    part = examples()
    task = nccl_tf.Task(TASKS - 1, tuple(HEADS[-1]), BATCH * STEPS, lambda: part, lambda: part)
    data = task.train_batches(BATCH)
    return lambda: learner.fit(data, task_id=TASKS - 1, end_task=False, verbose=0)


def in_torch(rule: str):
    """A call of STEPS steps in eager PyTorch."""
    stream, memory = examples(), full_ring()
    slots = np.arange((TASKS - 1) * 5 * SLOTS)
    side = TorchStep(
        stream,
        Examples(memory.images.numpy()[slots], memory.labels.numpy()[slots]),
        [list(head) for head in HEADS],
        RATE,
        rule,
    )
    return lambda: [side.step(k) for k in range(STEPS)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(2)
    sides = {
        "er_ring": fitted(nccl_tf.ExperienceReplay),
        "nccl_ring": fitted(nccl_tf.NCCL),
        "er_ring, eager PyTorch": in_torch("er"),
        "nccl_ring, eager PyTorch": in_torch("nccl"),
    }
    seconds = measure(sides, rounds)
    nccl = seconds["nccl_ring"]
    ratios = {
        "nccl_ring / er_ring": (nccl / seconds["er_ring"], 1.05),
        "nccl_ring / eager PyTorch": (nccl / seconds["nccl_ring, eager PyTorch"], 0.55),
    }
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    report("A step of the reduced ResNet-18, batches of 10 and 10 CIFAR images", times, ratios)


if __name__ == "__main__":
    main()
