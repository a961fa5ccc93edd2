"""An unknown number of classes: the head grows whenever a new one is met, and with it the memory.

    python examples/growing_classes.py                         # scikit-learn's digits
    python examples/growing_classes.py --dataset=split_mnist   # through TensorFlow Datasets

The classes arrive in groups of any size, under names that nobody knows beforehand. After the second
group the learner is saved, and another one, loaded from the file, continues.
"""

import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np

import nccl_tf

ARRIVALS = ((7, 1), (4,), (0, 2, 9), (3, 5, 6, 8))
"""The names of the classes of each group of data, unknown until it comes."""


class ClassNumbers(dict):
    """Numbers classes in the order in which they are met: the number of a class is its logit."""

    def __missing__(self, name: int) -> int:
        self[name] = len(self)
        return self[name]

    def of(self, names: np.ndarray) -> np.ndarray:
        return np.array([self[name] for name in names.tolist()])


def network(stream: nccl_tf.Stream, num_classes: int) -> keras.Model:
    shape = stream.example_shape
    return nccl_tf.networks.mlp(shape, num_classes, hidden=(64, 64), pixels=stream.pixels)


def fine_tuning(stream: nccl_tf.Stream) -> nccl_tf.Learner:
    return nccl_tf.Finetune(network(stream, 2))


def ring(stream: nccl_tf.Stream) -> nccl_tf.Learner:
    """Twenty slots for each class of each group: it grows with them."""
    memory = nccl_tf.RingMemory(20, task_classes=[[0, 1]])
    return nccl_tf.NCCL(network(stream, 2), memory)


def reservoir(stream: nccl_tf.Stream) -> nccl_tf.Learner:
    """Two hundred slots, however many classes come."""
    return nccl_tf.ExperienceReplay(network(stream, 2), nccl_tf.ReservoirMemory(200))


def learn(name: str, learner: nccl_tf.Learner, stream: nccl_tf.Stream, file: Path) -> None:
    """Learn each group when it comes, and print the accuracy on all groups after the last."""
    images, names = (np.concatenate(p) for p in zip(*(t.train for t in stream), strict=True))
    new, new_names = (np.concatenate(p) for p in zip(*(t.test for t in stream), strict=True))
    numbers = ClassNumbers()
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    for number, arrived in enumerate(ARRIVALS):
        own = np.isin(names, arrived)
        labels = numbers.of(names[own])
        if len(numbers) > learner.num_classes:
            learner.add_classes(len(numbers) - learner.num_classes)
        learner.fit(images[own], labels, batch_size=10, verbose=0)
        if number == 1:
            learner.save(file)
            learner = nccl_tf.load_model(file)
    groups = [np.isin(new_names, arrived) for arrived in ARRIVALS]
    accuracies = [
        learner.evaluate(new[group], numbers.of(new_names[group]), verbose=0)[1] for group in groups
    ]
    print(f"{name}: {learner.num_classes} classes,", " ".join(f"{a:.0%}" for a in accuracies))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="split_digits", help="a stream of ten classes")
    stream = nccl_tf.load_stream(parser.parse_args().dataset, head="single", seed=0)
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        for make in (fine_tuning, ring, reservoir):
            learn(make.__name__, make(stream), stream, Path(folder) / "learner.keras")


if __name__ == "__main__":
    main()
