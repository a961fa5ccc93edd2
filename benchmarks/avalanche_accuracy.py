"""Accuracy of DER and ER-ACE here and in Avalanche 0.6: same stream, memory size and network.

As `benchmarks.avalanche_step` is installed. Split MNIST with a single head, five tasks of 2,000
images in one pass, 500 slots, 784-256-256-10, batches of 10 and 10, rate 0.05. Avalanche's DER has
one memory batch for the logits and the labels, as `DER(replay_labels=...)`; it keeps the logits of
the network at the end of a task, ours those of the step that writes an example. Avalanche's ER-ACE
halves the sum of its two losses: it has twice the rate.
"""

import argparse
import json

import keras
import numpy as np
import torch

import nccl_tf
from benchmarks.avalanche_step import BATCH, DER, ER_ACE, avalanche

EXAMPLES, SLOTS, RATE = 2000, 500, 0.05
WEIGHTS = {"alpha": 0.5, "beta": 0.5}


def avalanche_accuracy(strategy, rate: float, seed: int, **arguments) -> float:
    """Mean accuracy over all tasks after the last one."""
    torch.manual_seed(seed)
    stream = load(seed)
    learner, experiences = avalanche(
        strategy, stream, rate=rate, mem_size=SLOTS, batch_size_mem=BATCH, **arguments
    )
    for experience in experiences:
        learner.train(experience)
    learner.model.eval()
    with torch.no_grad():
        outputs = [learner.model(torch.from_numpy(t.test.inputs).float() / 255) for t in stream]
    found = zip(outputs, stream, strict=True)
    return float(np.mean([np.mean(o.argmax(1).numpy() == t.test.labels) for o, t in found]))


def our_accuracy(method, seed: int, **arguments) -> float:
    """Mean accuracy over all tasks after the last one."""
    stream = load(seed)
    network = nccl_tf.networks.mlp(
        stream.example_shape, stream.num_classes, pixels=stream.pixels, seed=seed
    )
    learner = method(network, nccl_tf.ReservoirMemory(SLOTS, seed=seed), seed=seed, **arguments)
    learner.compile(keras.optimizers.SGD(RATE), metrics=["accuracy"])
    for task in stream:
        learner.fit(task.train_batches(BATCH, seed=seed), verbose=0)
    return float(np.mean([learner.accuracy(*task.test, task.task_id) for task in stream]))


def load(seed: int) -> nccl_tf.streams.Stream:
    """The stream of both."""
    return nccl_tf.load_stream("split_mnist", head="single", seed=seed, examples_per_task=EXAMPLES)


def main() -> None:
    """Run, and print means and deviations over the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(parser.parse_args().seeds)
    dark = {"dark": WEIGHTS["alpha"], "replay_labels": WEIGHTS["beta"]}
    sides = {
        "DER, ours": lambda seed: our_accuracy(nccl_tf.DER, seed, **dark),
        "DER, Avalanche": lambda seed: avalanche_accuracy(DER, RATE, seed, **WEIGHTS),
        "ER-ACE, ours": lambda seed: our_accuracy(nccl_tf.ERACE, seed),
        "ER-ACE, Avalanche": lambda seed: avalanche_accuracy(ER_ACE, 2 * RATE, seed),
    }
    found = {name: [100 * run(seed) for seed in seeds] for name, run in sides.items()}
    for name, values in found.items():
        print(f"  {name:<20} {np.mean(values):6.2f} ± {np.std(values):.2f} %")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
