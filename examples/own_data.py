"""Images of your own as a stream of tasks: arrays, or a folder of images.

    python examples/own_data.py                 # arrays: scikit-learn's digits
    python examples/own_data.py FOLDER          # FOLDER/train/CLASS/*.png, FOLDER/test/CLASS/*.png

Every task gets classes of its own; NCCL learns task after task and is then tested on all of them.
"""

import sys
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

import nccl_tf

Arrays = tuple[np.ndarray, np.ndarray]


def from_arrays() -> tuple[Arrays, Arrays]:
    """Training and test images uint8 [n, 8, 8, 1] with labels [n]."""
    digits = load_digits()
    images = (255 / 16 * digits.images[..., None]).astype(np.uint8)
    return (images[:1500], digits.target[:1500]), (images[1500:], digits.target[1500:])


def from_folder(folder: Path, size: tuple[int, int] = (32, 32)) -> tuple[Arrays, Arrays]:
    """Training and test images uint8 [n, 32, 32, 3], classes numbered in the order of names."""

    def read(part: str) -> Arrays:
        batches = keras.utils.image_dataset_from_directory(
            folder / part, image_size=size, shuffle=False, verbose=False
        )
        images, labels = zip(*batches.as_numpy_iterator(), strict=True)
        return np.concatenate(images).round().astype(np.uint8), np.concatenate(labels)

    return read("train"), read("test")


def main() -> None:
    train, test = from_folder(Path(sys.argv[1])) if len(sys.argv) > 1 else from_arrays()
    num_tasks = max(n for n in (5, 4, 3, 2, 1) if len(np.unique(train[1])) % n == 0)
    stream = nccl_tf.stream_from_arrays(train, test, num_tasks=num_tasks, head="multi", seed=0)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.RingMemory(5, stream.task_classes, stream.example_shape)
    model = nccl_tf.NCCL(network, memory, heads=stream.heads)
    model.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    for task in stream:
        model.fit(task.train_batches(batch_size=10, seed=0), shuffle=False, verbose=0)
        seen = [model.accuracy(*t.test, t.task_id) for t in stream.tasks[: task.task_id + 1]]
        print(f"after classes {task.classes}:", " ".join(f"{a:.0%}" for a in seen))


if __name__ == "__main__":
    main()
