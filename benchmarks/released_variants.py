"""A-GEM and SI as the DER paper's released code has them, beside ours, on its rotated MNIST.

python -m benchmarks.released_variants [--seeds 3] [--threads 1]

That code (mammoth, models/agem.py and models/si.py) parts from both methods' own papers: its A-GEM
offers one whole stream batch of every task to a reservoir as the task ends, in place of as many
examples of each task as the memory has room for; its SI adds alpha g^2 to the importance, with the
gradient of loss and penalty cut to [-1, 1]. All else is as in flags/DER. Here the batch is the last
one of the task, of 96 images, where the released code draws another one, of 128.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from nccl_tf.experiment.config.flags import parse_flag_words
from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.train import Run, train_seed
from nccl_tf.learner.step import Step
from nccl_tf.methods.registry import METHODS

FLAGS = Path(__file__).parents[1] / "flags" / "DER"
FILE = Path(__file__).with_name("released_variants.json")
STEPS = -(-60_000 // 128)


@keras.saving.register_keras_serializable(package="benchmarks")
class ReleasedAGEM(nccl_tf.AGEM):
    """A-GEM whose reservoir is offered the last batch of each task, and nothing else."""

    fast_paths = ()

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.steps = self._state("steps", (), "int64", 0)

    def after_step(self, batch: Batch, step: Step) -> None:
        is_last = self.steps.value.assign_add(1) % STEPS == 0
        weights = tf.where(is_last, batch.weights, tf.zeros_like(batch.weights))
        super().after_step(batch._replace(weights=weights), step)


@keras.saving.register_keras_serializable(package="benchmarks")
class ReleasedSI(nccl_tf.SI):
    """SI that counts the squares of the gradient of loss and penalty, cut to [-1, 1]."""

    fast_paths = ()

    def learn(self, batch: Batch, *replays: Batch) -> Step:
        step = super().learn(batch, *replays)
        cut = [tf.clip_by_value(gradient, -1.0, 1.0) for gradient in step.gradients]
        return step._replace(gradients=cut, state=cut)

    def apply_step(self, step: Step) -> None:
        super(nccl_tf.SI, self).apply_step(step)
        rate = tf.cast(self.optimizer.learning_rate, tf.float32)
        for contribution, gradient in zip(self.contributions, step.state, strict=True):
            contribution.assign_add(rate * tf.square(gradient))


CELLS = {
    "agem": ("rotated_mnist_m200/agem.flags", ReleasedAGEM, {"memory": "reservoir"}),
    "si": ("rotated_mnist/si.flags", ReleasedSI, {}),
}
"""Of each method its flag file, the released variant, and what else of its row changes."""


def accuracy(name: str, seed: int, threads: int) -> float:
    """The average accuracy of a run of the released variant, a fraction."""
    file, learner, changes = CELLS[name]
    ours = METHODS[name]
    row = {**vars(ours), "name": f"released_{name}", "learner": learner, **changes}
    if row["name"] not in METHODS:
        nccl_tf.register_method(nccl_tf.Method(**row))
    with tempfile.TemporaryDirectory() as folder:
        values = parse_flag_words([f"--flagfile={FLAGS / file}", f"--method={row['name']}"])
        options = resolve_options({"output_dir": folder, "threads": threads})
        record, _ = train_seed(Run.from_flags(values, options, seed), console=Console("none"))
    return float(record["average_accuracy"])


def main() -> None:
    """Run, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in CELLS:
        found[name] = [accuracy(name, seed, asked.threads) for seed in range(asked.seeds)]
        print(name, f"{100 * np.mean(found[name]):.1f} ± {100 * np.std(found[name]):.1f} %")
        FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
