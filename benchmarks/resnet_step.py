"""A step of NCCL on the reduced ResNet-18 against one of experience replay, and both in PyTorch.

pip install torch==2.13.0, then python -m benchmarks.resnet_step
"""

import keras
import numpy as np

import nccl_tf
from benchmarks.last_task import SLOTS, examples, fitted, full_ring
from benchmarks.resnet_torch import TorchStep
from benchmarks.side_by_side import measure, report, rounds_of
from nccl_tf.streams.examples import Examples

IMAGE_SHAPE, CLASSES = (32, 32, 3), 100
TASKS, STEPS = 17, 10
RATE = 0.03
HEADS = [range(5 * k, 5 * k + 5) for k in range(TASKS)]


def side(method):
    """A call that fits STEPS steps of the last task."""
    network = nccl_tf.networks.resnet18_reduced(IMAGE_SHAPE, CLASSES, seed=0)
    learner = method(network, full_ring(HEADS, IMAGE_SHAPE), heads=HEADS)
    learner.compile(keras.optimizers.SGD(RATE))
    return fitted(learner, examples(STEPS, IMAGE_SHAPE, HEADS[-1]), HEADS)


def in_torch(rule: str):
    """A call of STEPS steps in eager PyTorch."""
    stream, memory = examples(STEPS, IMAGE_SHAPE, HEADS[-1]), full_ring(HEADS, IMAGE_SHAPE)
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
    rounds = rounds_of(__doc__, 9)
    sides = {
        "er_ring": side(nccl_tf.ExperienceReplay),
        "nccl_ring": side(nccl_tf.NCCL),
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
