"""Trains by `learn` in a process of its own, which a test may kill: METHOD BACKUP_DIR RESULT.

After "adapters:" a method trains adapters (LoRA) in the network's hidden layer.
"""

import sys
from pathlib import Path

import keras

import nccl_tf
from nccl_tf.records.checkpoints import state_sha256


def main(name: str, backup_dir: str, result: str) -> None:
    """Write the hash of all that the method has learned, and its accuracies."""
    keras.utils.set_random_seed(0)
    adapts, name = name.startswith("adapters:"), name.removeprefix("adapters:")
    if name == "icarl":  # knows a task by its new classes
        stream, epochs = nccl_tf.load_stream("split_digits", head="single"), 15
    else:
        stream, epochs = nccl_tf.load_stream("permuted_digits", num_tasks=4), 3
    network = nccl_tf.networks.mlp(
        stream.example_shape, stream.num_classes, hidden=(64,), pixels=stream.pixels
    )
    if adapts:
        network.layers[-2].enable_lora(4)
    memory = 200 if nccl_tf.get_method(name).memory else None
    fewer = {"projected_features": 100} if name == "ranpac" else {}  # as in test_kills.py
    learner = nccl_tf.create(name, network, stream, memory=memory, **fewer)
    learner.compile(keras.optimizers.SGD(0.05), metrics=["accuracy"], steps_per_execution=20)
    learned = nccl_tf.learn(
        learner, stream, batch_size=10, epochs=epochs, verbose=0,
        backup_dir=backup_dir, backup_every=0.2,
    )  # fmt: skip
    Path(result).write_text(
        f"{state_sha256(learner.state_variables)}\n{learned.matrix.tolist()}", encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
