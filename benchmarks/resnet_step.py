"""A step of NCCL on the reduced ResNet-18 against one of experience replay, its own convolutions
alone, and both steps in PyTorch.

pip install torch==2.13.0, then python -m benchmarks.resnet_step
"""

import keras
import tensorflow as tf

import nccl_tf
from benchmarks.peers import Task, TorchStep, resnet
from benchmarks.side_by_side import (
    BATCH,
    examples,
    fitted,
    full_ring,
    measure,
    readable,
    report,
    rounds_of,
)

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
    side = TorchStep(resnet(CLASSES), Task(stream, readable(memory), HEADS), RATE, rule)
    return lambda: [side.step(k) for k in range(STEPS)]


def convolutions():
    """A call of STEPS times all convolutions of a step, forth and back, and nothing else."""
    network = nccl_tf.networks.resnet18_reduced(IMAGE_SHAPE, CLASSES, seed=0)
    layers = [layer for layer in network.layers if isinstance(layer, keras.layers.Conv2D)]
    inputs = [tf.Variable(tf.random.normal([2 * BATCH, *one.input.shape[1:]])) for one in layers]
    slopes = [tf.random.normal([2 * BATCH, *layer.output.shape[1:]]) for layer in layers]
    kernels = [layer.kernel.value for layer in layers]
    found = [tf.Variable(x) for part in (inputs, kernels, slopes) for x in part]

    @tf.function
    def loop() -> None:
        for _ in tf.range(STEPS):
            by_input, by_kernel, outputs = [], [], []
            for layer, x, kernel, slope in zip(layers, inputs, kernels, slopes, strict=True):
                x = tf.identity(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    outputs.append(tf.nn.conv2d(x, kernel, layer.strides, "SAME"))
                # Nothing is before the first layer that would need its gradient by the images.
                needed = [x, kernel] if len(outputs) > 1 else [kernel]
                *rest, own = tape.gradient(outputs[-1], needed, slope)
                by_input += rest or [x]
                by_kernel.append(own)
            for variable, value in zip(found, by_input + by_kernel + outputs, strict=True):
                variable.assign(value)

    return loop


def main() -> None:
    """Measure and print."""
    rounds = rounds_of(__doc__, 9, threads=2)
    sides = {
        "er_ring": side(nccl_tf.ExperienceReplay),
        "nccl_ring": side(nccl_tf.NCCL),
        "its convolutions alone": convolutions(),
        "er_ring, eager PyTorch": in_torch("er_ring"),
        "nccl_ring, eager PyTorch": in_torch("nccl_ring"),
    }
    seconds = measure(sides, rounds)
    nccl = seconds["nccl_ring"]
    ratios = {
        "nccl_ring / er_ring": (nccl / seconds["er_ring"], 1.05),
        "nccl_ring / its convolutions alone": (nccl / seconds["its convolutions alone"], None),
        "its convolutions alone / eager PyTorch": (
            seconds["its convolutions alone"] / seconds["nccl_ring, eager PyTorch"],
            None,
        ),
        "nccl_ring / eager PyTorch": (nccl / seconds["nccl_ring, eager PyTorch"], 0.55),
    }
    times = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    report("A step of the reduced ResNet-18, batches of 10 and 10 CIFAR images", times, ratios)


if __name__ == "__main__":
    main()
