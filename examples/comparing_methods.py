"""Methods compared on one stream: a table of accuracy and forgetting, and a picture.

    python examples/comparing_methods.py                     # 4 methods, 2 seeds, 5 tasks
    python examples/comparing_methods.py SEEDS TASKS NAME    # others: 3 5 NCCL ER

Every method has the same network, first weights and order of examples; a seed draws all of them.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
from matplotlib import pyplot

import nccl_tf

Make = Callable[[keras.Model, nccl_tf.Stream, int], nccl_tf.Learner]


def ring(stream: nccl_tf.Stream, seed: int) -> nccl_tf.RingMemory:
    return nccl_tf.RingMemory(10, stream.task_classes, stream.example_shape, seed=seed)


METHODS: dict[str, Make] = {
    "fine-tuning": lambda network, stream, seed: nccl_tf.Finetune(network),
    "ER": lambda network, stream, seed: nccl_tf.ExperienceReplay(network, ring(stream, seed)),
    "A-GEM": lambda network, stream, seed: nccl_tf.AGEM(network, ring(stream, seed)),
    "NCCL": lambda network, stream, seed: nccl_tf.NCCL(network, ring(stream, seed)),
}


def learn(make: Make, seed: int, tasks: int) -> nccl_tf.LearnResult:
    stream = nccl_tf.load_stream("split_digits", head="single", seed=seed, max_tasks=tasks)
    network = nccl_tf.networks.mlp(
        stream.example_shape, stream.num_classes, hidden=(64, 64), pixels=stream.pixels, seed=seed
    )
    model = make(network, stream, seed)
    model.compile(keras.optimizers.SGD(0.1))
    return nccl_tf.learn(model, stream, seed=seed, verbose=0)


def main(seeds: str = "2", tasks: str = "5", *names: str) -> None:
    chosen = names or tuple(METHODS)
    size = (11, 4 * len(chosen))
    figure, axes = pyplot.subplots(
        len(chosen), 2, figsize=size, layout="constrained", squeeze=False
    )
    print(f"{'method':<12} {'accuracy':>14} {'forgetting':>14}")
    for row, name in enumerate(chosen):
        results = [learn(METHODS[name], seed, int(tasks)) for seed in range(int(seeds))]
        accuracy = np.array([100 * result.average_accuracy for result in results])
        forgetting = np.array([result.forgetting for result in results])
        print(
            f"{name:<12} {accuracy.mean():6.1f} ± {accuracy.std():4.1f} %"
            f" {forgetting.mean():7.3f} ± {forgetting.std():.3f}"
        )
        results[0].plot(axes[row])
    picture = Path(tempfile.gettempdir()) / "comparing_methods.png"
    figure.savefig(picture)
    print(f"matrices and curves: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
