"""A table and numbers to predict: regression on groups of patients that come one after another.

    python examples/tabular_regression.py

The data are scikit-learn's diabetes: ten features of 442 patients, and how far the disease has gone
a year later. The tasks are three groups by body mass index. Most of what the features mean is the
same in all of them, so what is forgotten is little; a hundred patients kept in memory lower the
error on the groups before the last.
"""

import argparse

import keras
import numpy as np
from sklearn.datasets import load_diabetes

import nccl_tf

BODY_MASS_INDEX = 2  # a column of the table


def network(features: int) -> keras.Model:
    """A small dense network from features to one number."""
    return keras.Sequential(
        [
            keras.Input((features,)),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dense(1),
        ]
    )


def groups() -> list[tuple[np.ndarray, np.ndarray]]:
    """Features and standardised targets of each task."""
    table, target = load_diabetes(return_X_y=True)
    table, target = table / table.std(axis=0), (target - target.mean()) / target.std()
    # Patients of one index keep their order: NumPy's default sort orders them by the processor.
    order = np.argsort(table[:, BODY_MASS_INDEX], kind="stable")
    return [(table[rows], target[rows]) for rows in np.array_split(order, 3)]


def learn(model: keras.Model, epochs: int) -> list[float]:
    """Learn the groups one after another; returns the mean absolute error on each."""
    model.compile(keras.optimizers.SGD(0.02), loss="mse", metrics=["mae"])
    tasks = groups()
    held_out = [np.arange(len(target)) % 4 == 0 for _, target in tasks]
    for (table, target), test in zip(tasks, held_out, strict=True):
        model.fit(table[~test], target[~test], batch_size=10, epochs=epochs, verbose=0)
    return [
        model.evaluate(table[test], target[test], verbose=0, return_dict=True)["mae"]
        for (table, target), test in zip(tasks, held_out, strict=True)
    ]


def replay() -> keras.Model:
    """A learner that keeps a hundred patients."""
    return nccl_tf.ExperienceReplay(network(10), nccl_tf.ReservoirMemory(100))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30, help="passes over each group")
    parser.add_argument("--networks", type=int, default=3, help="networks to average over")
    arguments = parser.parse_args()
    learners = {"fine-tuning": lambda: nccl_tf.Finetune(network(10)), "replay": replay}
    for name, build in learners.items():
        keras.utils.set_random_seed(0)
        errors = [learn(build(), arguments.epochs) for _ in range(arguments.networks)]
        means = " ".join(f"{error:.2f}" for error in np.mean(errors, axis=0))
        print(f"{name}: mean absolute error on each group {means}")


if __name__ == "__main__":
    main()
