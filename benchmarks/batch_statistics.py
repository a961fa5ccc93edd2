"""Accuracy with batch norm's moving averages, and with the statistics of the test batch itself.

python -m benchmarks.batch_statistics --flagfile=flags/T6/split_cifar100_m5/mc_sgd.flags [--seeds=0]

The network of MC-SGD's code for CIFAR keeps no moving averages (track_running_stats=False in
core/models.py of github.com/imirzadeh/CL-LinearModeConnectivity): a test batch, of as many images
as a training batch and all of one task, is normalised by its own mean and variance. Here a run
learns as `run.py` would with the same flags, and each task is tested both ways after every task, in
shuffled batches of its training's size. Writes both accuracy matrices to
benchmarks/batch_statistics.json, under the hash of the settings and the seed.
"""

import json
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.experiment.config.flags import parse_flag_words
from nccl_tf.experiment.config.options import Options, resolve_options
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.config.settings import Settings
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.networks.layers import without_dropout
from nccl_tf.streams.task import Task
from nccl_tf.variables import assign_all, values_of

FILE = Path(__file__).with_name("batch_statistics.json")
Matrix = list[list[float | None]]


class Tests:
    """Tests of a learner with a head for each task, by both kinds of statistics.

    Args:
        learner: The learner.
        batch: Images of a test batch.
        seed: Seed of the order of test images.
    """

    def __init__(self, learner: keras.Model, batch: int, seed: int):
        self._network, self._batch, self._seed = learner.network, batch, seed
        self._logits = {own: tf.function(self._make(own)) for own in (False, True)}

    def _make(self, own: bool):
        def logits(images: tf.Tensor) -> tf.Tensor:
            with without_dropout(self._network):
                return self._network(images, training=own)

        return logits

    def accuracy(self, task: Task, own: bool) -> float:
        """The share of right test images of the task."""
        images, labels = task.test
        order = np.random.default_rng(self._seed).permutation(len(labels))
        order = order[: len(order) // self._batch * self._batch]
        # A call in training moves the averages.
        averages = values_of(self._network.non_trainable_variables)
        found = [
            self._logits[own](images[rows]) for rows in np.split(order, len(order) // self._batch)
        ]
        assign_all(self._network.non_trainable_variables, averages)
        classes = np.array(task.classes)
        chosen = classes[np.concatenate(found)[:, classes].argmax(axis=1)]
        return round(float(np.mean(chosen == labels[order])), 6)


def matrices(settings: Settings, options: Options, seed: int) -> dict[str, Matrix]:
    """{"moving": the accuracy matrix, None above the diagonal, "own": the same}."""
    stream = build_stream(settings, options, seed)
    learner = build_learner(settings, stream, seed)
    tests = Tests(learner, settings.batch_size, seed)
    result: dict[str, Matrix] = {"moving": [], "own": []}
    for number, task in enumerate(stream, start=1):
        learner.fit(task.train_batches(settings.batch_size, seed=seed), verbose=0)
        for kind, rows in result.items():
            row = [tests.accuracy(learned, kind == "own") for learned in stream.tasks[:number]]
            rows.append([*row, *[None] * (len(stream) - number)])
            print(f"seed {seed}, task {number}, {kind}: {100 * np.mean(row):.1f} %", flush=True)
    return result


def main() -> None:
    """Train, print and keep."""
    flag_values = parse_flag_words(sys.argv[1:])
    settings, options = resolve(flag_values), resolve_options(flag_values)
    for seed in options.seeds:
        found = matrices(settings, options, seed)
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        kept.setdefault(settings.digest()[:8], {})[str(seed)] = found
        FILE.write_text(json.dumps(kept) + "\n")
        for kind, rows in found.items():
            accuracy = nccl_tf.metrics.average_accuracy(rows)
            lost = nccl_tf.metrics.forgetting(rows)
            print(f"seed {seed}, {kind}: {100 * accuracy:.1f} %, forgetting {lost:.3f}", flush=True)


if __name__ == "__main__":
    main()
