"""What a learner costs in a LiteRT file: bytes, time of an export, of a step, and of one of `fit`.

    python -m benchmarks.on_device
    python -m benchmarks.on_device --steps=500 --only=er_conv

Images of 28 x 28 bytes, ten classes, batches of 10, a memory of 200 examples unless its name says
otherwise. A step of `fit` is one of a warm pass over arrays; a device's is a call of `train` in the
interpreter, with one thread. Processor time, which another program on the machine does not add to.
"""

import argparse
import tempfile
import time
from pathlib import Path

import keras
import numpy as np

import nccl_tf
from nccl_tf.device_file.runtime import interpreter

SHAPE = (28, 28, 1)
BATCH = 10


def conv() -> keras.Model:
    layers = keras.layers
    return keras.Sequential([
        keras.Input(SHAPE, dtype="uint8"), layers.Rescaling(1 / 255),
        layers.Conv2D(8, 3, strides=2, activation="relu"),
        layers.Conv2D(16, 3, strides=2, activation="relu"),
        layers.Flatten(), layers.Dense(32, "relu"), layers.Dense(10),
    ])  # fmt: skip


def mlp() -> keras.Model:
    return nccl_tf.networks.mlp(SHAPE, 10)


def er(network: keras.Model, slots: int = 200) -> nccl_tf.Learner:
    return nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(slots, SHAPE))


LEARNERS = {
    "finetune_mlp": lambda: nccl_tf.Finetune(mlp()),
    "er_mlp": lambda: er(mlp()),
    "er_mlp_5000": lambda: er(mlp(), 5000),
    "er_conv": lambda: er(conv()),
    "nccl_mlp": lambda: nccl_tf.NCCL(mlp(), nccl_tf.ReservoirMemory(200, SHAPE)),
}


def measure(name: str, steps: int, folder: Path) -> str:
    """A row of the table."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (steps * BATCH, *SHAPE), np.uint8)
    labels = random.integers(0, 10, len(images)).astype(np.int32)
    learner = LEARNERS[name]()
    learner.compile(keras.optimizers.SGD(0.01), jit_compile=False)

    def fit() -> None:
        learner.fit(images, labels, batch_size=BATCH, verbose=0, end_task=False)

    fit()
    started = time.process_time()
    fit()
    in_keras = (time.process_time() - started) / steps
    started = time.process_time()
    file = nccl_tf.export_learner(learner, folder / "learner.tflite", batch_size=BATCH)
    export = time.process_time() - started
    device = interpreter(file.path.read_bytes())
    train, weights = device.get_signature_runner("train"), np.ones(BATCH, np.float32)
    images = images.astype(file.layout["inputs"][0]["dtype"])
    batches = np.split(images, steps), np.split(labels, steps)
    train(x=images[:BATCH], y=labels[:BATCH], weights=weights)
    started = time.process_time()
    for x, y in zip(*batches, strict=True):
        train(x=x, y=y, weights=weights)
    on_device = (time.process_time() - started) / steps
    return (
        f"| {name} | {file.bytes:,} | {file.layout['state_bytes']:,} | {export:.1f} | "
        f"{1e3 * on_device:.2f} | {1e3 * in_keras:.2f} | {on_device / in_keras:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--only", choices=LEARNERS, action="append")
    given = parser.parse_args()
    print("| learner | file, bytes | state, bytes | export, s | step, ms | of fit, ms | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only or LEARNERS:
            print(measure(name, given.steps, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
