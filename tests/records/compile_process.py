"""Compiles the steps of a learner in a process of its own: FOLDER or "off", and SEED.

Prints how the cache served, the hash of the learner's state, and what the log says.
"""

import sys

import keras
import numpy as np

import nccl_tf
from nccl_tf.errors import UserError
from nccl_tf.records import compile_cache
from nccl_tf.records.checkpoints import state_sha256


def main(folder: str, seed: str = "0") -> None:
    """Train 24 steps, 8 in a program."""
    keras.utils.set_random_seed(int(seed))
    if folder != "off":
        nccl_tf.use_compile_cache(folder)
    values = np.random.default_rng(0)
    x = values.normal(size=(240, 6)).astype("float32")
    network = nccl_tf.networks.mlp((6,), 3, hidden=(8,))
    memory = nccl_tf.ReservoirMemory(30, seed=int(seed))
    learner = nccl_tf.ExperienceReplay(network, memory, seed=int(seed))
    learner.compile(keras.optimizers.SGD(0.1), jit_compile=True, steps_per_execution=8)
    learner.fit(x, values.integers(0, 3, 240), batch_size=10, verbose=0)
    print(compile_cache.publish(True), state_sha256(learner.state_variables))
    try:
        nccl_tf.use_compile_cache(f"{folder}-other")
    except UserError:
        print("refused")


if __name__ == "__main__":
    main(*sys.argv[1:])
