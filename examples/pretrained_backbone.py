"""A pretrained network of keras.applications under a head that learns task after task.

    python examples/pretrained_backbone.py                                # random weights
    python examples/pretrained_backbone.py --weights=imagenet --size=96   # downloaded by Keras
    python examples/pretrained_backbone.py --weights=FILE.weights.h5      # a file of weights
    python examples/pretrained_backbone.py --method=derpp                 # another method

Frozen, the network is run once over the data, and a head learns the stream of its features. Then
the whole is fine-tuned at a low rate: features change now, so that the memory keeps images.
"""

import argparse

import keras
import numpy as np
from sklearn.datasets import load_digits

import nccl_tf

RATE = 0.001
LAYERS = 12  # the last block and what follows it: those that are fine-tuned

Examples = tuple[np.ndarray, np.ndarray]

METHODS = {
    "finetune": nccl_tf.Finetune,
    "er": lambda network: nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(200)),
    "nccl": lambda network: nccl_tf.NCCL(network, nccl_tf.ReservoirMemory(200)),
    "derpp": lambda network: nccl_tf.DERpp(network, nccl_tf.ReservoirMemory(200)),
    "ewc": nccl_tf.EWC,
}
"""Any method takes the place of these: what it learns from are features, or images."""


def digits(tasks: int) -> tuple[Examples, Examples]:
    """Training and test images uint8 [n, 8, 8, 3] with labels [n], two digits a task."""
    data = load_digits()
    images = np.repeat((255 / 16 * data.images).astype(np.uint8)[..., None], 3, axis=-1)
    known = data.target < 2 * tasks
    images, labels = images[known], data.target[known]
    cut = len(labels) * 5 // 6
    return (images[:cut], labels[:cut]), (images[cut:], labels[cut:])


def backbone(weights: str | None, size: int, shape: tuple[int, ...]) -> keras.Model:
    """MobileNetV2 from raw images to features [n, 1280].

    Batch normalisation stays as the weights bring it: `trainable=False` for its scale and offset,
    `training=False` for its statistics, which batches of ten images of one task would spoil.
    """
    mobile = keras.applications.MobileNetV2(
        input_shape=(size, size, 3), alpha=0.35, include_top=False, pooling="avg", weights=weights
    )
    tuned = mobile.layers[-LAYERS:]
    for layer in mobile.layers:
        is_norm = isinstance(layer, keras.layers.BatchNormalization)
        layer.trainable = layer in tuned and not is_norm
    inputs = keras.Input(shape, dtype="uint8")
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(inputs)  # what MobileNetV2 expects
    x = keras.layers.Resizing(size, size)(x)
    return keras.Model(inputs, mobile(x, training=False))


def head_for(features: np.ndarray, classes: int) -> keras.Sequential:
    """A linear head on standardised features; only those of the first task are known."""
    mean, std = features.mean(axis=0), features.std(axis=0)
    std += 0.01 * std.max()
    scale = keras.layers.Rescaling((1 / std).tolist(), (-mean / std).tolist())
    return keras.Sequential([keras.Input(mean.shape), scale, keras.layers.Dense(classes)])


def learn(
    name: str, network: keras.Model, method: str, data: tuple[Examples, Examples], rate: float
) -> None:
    """Learn the tasks one after another, and print the accuracy on each after the last."""
    train, test = data
    stream = nccl_tf.stream_from_arrays(train, test, num_tasks=len(np.unique(train[1])) // 2)
    model = METHODS[method](network)
    model.compile(keras.optimizers.SGD(rate))
    result = nccl_tf.learn(model, stream, batch_size=10, verbose=0)
    print(f"{name}: accuracy on each task", " ".join(f"{a:.0%}" for a in result.matrix[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", help="imagenet, or a file of weights; random by default")
    parser.add_argument("--size", type=int, default=32, help="pixels that images are scaled to")
    parser.add_argument("--method", choices=METHODS, default="nccl")
    parser.add_argument("--tasks", type=int, default=5, help="tasks of two digits each")
    args = parser.parse_args()
    keras.utils.set_random_seed(0)
    images = digits(args.tasks)
    features = backbone(args.weights, args.size, images[0][0].shape[1:])

    # Frozen: each image passes through the backbone once, and the memory keeps its features.
    cached = [(features.predict(x, batch_size=100, verbose=0), y) for x, y in images]
    x, y = cached[0]
    head = head_for(x[y < 2], 2 * args.tasks)
    learn("frozen", head, args.method, cached, RATE)

    # Fine-tuned: the last layers of the backbone too, below the head that is trained already.
    network = keras.Model(features.input, head(features.output))
    learn("fine-tuned", network, args.method, images, RATE / 10)


if __name__ == "__main__":
    main()
