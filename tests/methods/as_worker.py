"""A program: one of two workers over loopback, as TF_CONFIG says. Prints JSON."""

import json
import sys

import tensorflow as tf

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()

import numpy as np  # noqa: E402

from tests.methods.on_two_devices import learn  # noqa: E402


def main() -> None:
    with STRATEGY.scope():
        learned = learn("nccl_reservoir", evaluates=False)
    np.savez(sys.argv[1], **learned.values())
    print(json.dumps({"replicas": STRATEGY.num_replicas_in_sync, "logs": learned.logs}))


if __name__ == "__main__":
    main()
