"""What MER keeps of earlier tasks, and replay beside it, by the statistics that batch norm takes.

python -m benchmarks.mer_statistics [--seed 0]

Split CIFAR-100 with a single head, the first three of ten tasks, with the tenth of their training
images that tuning holds out in place of test images, ten slots a class, and the points that
flags/comparison/split_cifar100_1000 chose. MER's single examples pass with statistics of their own
("example") or moving averages ("moving"). Of the two earlier tasks: the share of examples of
memory, and of held-out images, whose class has the largest logit of all seen classes, with moving
averages ("tests") and each image with its own statistics ("own"). Writes
benchmarks/mer_statistics.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.experiment.config.flags import parse_flag_words

POINTS = Path(__file__).parents[1] / "flags/comparison/split_cifar100_1000"
FILE = Path(__file__).with_name("mer_statistics.json")
TASKS = 3


def trained(name: str, seed: int) -> tuple[nccl_tf.Stream, Any]:
    """The learner after the tasks: MER by the statistics of its single examples, or replay."""
    system = "er_reservoir" if name == "replay" else "mer"
    chosen = parse_flag_words([f"--flagfile={POINTS / system}.flags"])
    stream = nccl_tf.load_stream(
        "split_cifar100", head="single", seed=seed, num_tasks=chosen["num_tasks"],
        tuning_tasks=0, tasks="tuning", max_tasks=TASKS,
    )  # fmt: skip
    network = nccl_tf.networks.resnet18_reduced(
        stream.example_shape, stream.num_classes, pixels=stream.pixels, seed=seed
    )
    classes = sum(len(task.classes) for task in stream)
    memory = nccl_tf.ReservoirMemory(chosen["memory_per_class"] * classes)
    if name == "replay":
        model = nccl_tf.ExperienceReplay(network, memory, seed=seed)
    else:
        model = nccl_tf.MER(
            network, memory, meta_rate=chosen["meta_rate"], mer_batch_norm=name, seed=seed
        )
    model.compile(keras.optimizers.SGD(chosen["learning_rate"]))
    for task in stream:
        model.fit(task, batch_size=10, verbose=0)
    return stream, model


def shares(stream: nccl_tf.Stream, model: Any) -> dict[str, dict[str, float]]:
    """{where: {statistics: share of earlier tasks' examples that are right}}."""
    seen = np.array([c for task in stream for c in task.classes])
    tasks = list(stream)[:-1]
    earlier = np.array([c for task in tasks for c in task.classes])
    held = model.memory.read_all()
    is_earlier = np.isin(held.labels, earlier)
    asked = {
        "memory": (held.inputs[is_earlier], held.labels[is_earlier]),
        "held-out": tuple(np.concatenate(part) for part in zip(
            *((task.test.inputs, task.test.labels) for task in tasks), strict=True
        )),
    }  # fmt: skip

    @tf.function
    def alone(images: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(
            lambda image: model.network(image[None], training=True)[0], images,
            fn_output_signature=tf.float32,
        )  # fmt: skip

    result = {}
    for name, (images, labels) in asked.items():
        logits = {"tests": model.predict(images, verbose=0), "own": alone(images).numpy()}
        result[name] = {
            kind: float(np.mean(seen[values[:, seen].argmax(axis=1)] == labels))
            for kind, values in logits.items()
        }
    return result


def main() -> None:
    """Train, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    found = {}
    for name in ("example", "moving", "replay"):
        found[name] = shares(*trained(name, asked.seed))
        print(name, found[name], flush=True)
        FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
