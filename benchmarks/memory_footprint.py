"""Peak resident memory of a run against what it has to hold.

python -m benchmarks.memory_footprint [--dataset=split_mnist] [--method=er_ring]
"""

import argparse
import json
import resource
import tempfile

import keras
import numpy as np
import psutil
import tensorflow as tf

from nccl_tf.experiment.config.options import resolve_options
from nccl_tf.experiment.run.build import build_learner, build_stream
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.train import Run, train_seed
from nccl_tf.streams.catalog import get_dataset
from nccl_tf.streams.sources.images import load_images

TARGET = 1.3


def framework() -> int:
    """Resident bytes after one compiled step of a network of one neuron."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.zeros((1, 1)), np.zeros((1, 1)), verbose=0)
    return psutil.Process().memory_info().rss


def needed(run: Run) -> dict[str, int]:
    """Bytes of the images, of the replay memory, and of three times the weights."""
    stream = build_stream(run.settings, run.options, run.seed)
    row = get_dataset(run.settings.dataset)
    images = load_images(row.source, run.options.data_dir, run.options.manual_dir)
    learner = build_learner(run.settings, stream, run.seed)
    memory = getattr(learner, "memory", None)
    slots = memory.variables if memory is not None else []
    return {
        "data": images.train.inputs.nbytes + images.test.inputs.nbytes,
        # A permuted stream keeps what every row of the accuracy matrix is measured on.
        "test images kept by the stream": sum(
            task.test.inputs.nbytes for task in stream if task.test.inputs is task.test.inputs
        ),
        "memory": sum(_bytes(v) for v in slots),
        "weights x 3": 3 * sum(_bytes(v) for v in learner.network.variables),
    }


def _bytes(variable: keras.Variable) -> int:
    return int(np.prod(variable.shape)) * tf.as_dtype(variable.dtype).size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="permuted_mnist")
    parser.add_argument("--method", default="er_ring")
    given = vars(parser.parse_args())
    parts = {"framework": framework()}
    with tempfile.TemporaryDirectory() as folder:
        options = resolve_options({"output_dir": folder})
        run = Run.of({**given, "output_dir": folder}, options, 0)
        train_seed(run, console=Console("none"))
        parts |= needed(run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ratio = peak / sum(parts.values())
    title = f"Resident memory of {given['method']} on {given['dataset']}"
    print(title)
    for name, size in {**parts, "peak": peak}.items():
        print(f"  {name:<44} {size / 2**20:9.1f} MiB")
    print(f"  {'peak / sum':<44} {ratio:9.2f}     target {TARGET:g}")
    print(json.dumps({"title": title, "bytes": {**parts, "peak": peak}, "ratio": ratio}))


if __name__ == "__main__":
    main()
