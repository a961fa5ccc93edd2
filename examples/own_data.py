"""Data of your own as a stream of tasks: arrays, a table or a folder of images.

    python examples/own_data.py                 # arrays: scikit-learn's digits
    python examples/own_data.py table           # a pandas.DataFrame: scikit-learn's wines
    python examples/own_data.py FOLDER          # FOLDER/train/CLASS/*.png, FOLDER/test/CLASS/*.png

Every task gets classes of its own, those of the table its own range of a column; NCCL learns task
after task, and all of them are evaluated after each one.
"""

import sys
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits, load_wine

import nccl_tf


def from_arrays() -> nccl_tf.Stream:
    """Digits uint8 [n, 8, 8, 1] with labels [n], two classes a task, each with its head."""
    digits = load_digits()
    images = (255 / 16 * digits.images).astype(np.uint8)
    train, test = (images[:1500], digits.target[:1500]), (images[1500:], digits.target[1500:])
    return nccl_tf.stream_from_arrays(train, test, num_tasks=5, head="multi")


def from_table() -> nccl_tf.Stream:
    """Wines of three kinds, 13 columns of numbers; a task a third of the range of alcohol."""
    table = load_wine(as_frame=True).frame.sample(frac=1, random_state=0)
    alcohol, columns = table["alcohol"], table.drop(columns="target")
    columns = (columns - columns.mean()) / columns.std()
    train, test = (
        (columns[part], table["target"][part]) for part in (slice(0, 130), slice(130, None))
    )
    domains = alcohol[:130], alcohol[130:]
    return nccl_tf.stream_from_arrays(train, test, domains=domains, num_tasks=3)


def from_folder(folder: Path, size: tuple[int, int] = (32, 32)) -> nccl_tf.Stream:
    """Images uint8 [n, 32, 32, 3], labelled with the names of their folders."""

    def read(part: str) -> tuple[np.ndarray, np.ndarray]:
        batches = keras.utils.image_dataset_from_directory(
            folder / part, image_size=size, shuffle=False, verbose=False
        )
        images, labels = zip(*batches.as_numpy_iterator(), strict=True)
        names = np.array(batches.class_names)[np.concatenate(labels)]
        return np.concatenate(images).round().astype(np.uint8), names

    train, test = read("train"), read("test")
    num_tasks = max(n for n in (5, 4, 3, 2, 1) if len(np.unique(train[1])) % n == 0)
    return nccl_tf.stream_from_arrays(train, test, num_tasks=num_tasks, head="multi")


def main(source: str = "arrays") -> None:
    made = {"arrays": from_arrays, "table": from_table}
    stream = made[source]() if source in made else from_folder(Path(source))
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.RingMemory(5, stream.task_classes, stream.example_shape, stream.example_dtype)
    model = nccl_tf.NCCL(network, memory, heads=stream.heads)
    model.compile(keras.optimizers.SGD(0.1))
    result = nccl_tf.learn(model, stream, batch_size=10, verbose=0)
    for task in stream:
        seen = result.matrix[task.task_id, : task.task_id + 1]
        classes = ", ".join(map(stream.shown, task.classes))
        print(f"after classes {classes}:", " ".join(f"{a:.0%}" for a in seen))
    print(f"forgetting {result.forgetting:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
