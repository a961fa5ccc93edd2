"""Learning on a device: one LiteRT file that learns two classes which Keras never saw.

    pip install "nccl_tf[device]"
    python examples/learn_on_device.py                        # scikit-learn's digits
    python examples/learn_on_device.py --dataset=split_mnist  # through TensorFlow Datasets

Two tasks are learned in Keras, and the learner becomes a file. A process that has neither
TensorFlow nor Keras nor this package learns the third task with it, as a phone would, is switched
off amid of it, and goes on. What it has learned comes back into Keras.

    python learn_on_device.py FILE TASK STATE   # what that process runs: LiteRT and NumPy alone
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BATCH = 10


class Device:
    """The file as a program on a device holds it."""

    def __init__(self, path: str) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self._interpreter = Interpreter(path, num_threads=1)

    def run(self, signature: str, **columns: np.ndarray) -> dict[str, np.ndarray]:
        return self._interpreter.get_signature_runner(signature)(**columns)

    def learn(self, images: np.ndarray, labels: np.ndarray) -> bool:
        """A step on at most a batch, which is filled with examples of weight 0."""
        missing = BATCH - len(labels)
        weights = np.pad(np.ones(len(labels), np.float32), (0, missing))
        images = np.pad(images, [(0, missing), *[(0, 0)] * (images.ndim - 1)])
        labels = np.pad(labels.astype(np.int32), (0, missing))
        before = self.run("save")["state"]
        try:
            return bool(self.run("train", x=images, y=labels, weights=weights)["learned"])
        except (RuntimeError, ValueError):
            # A step that failed may have written half of what it writes.
            self.run("restore", state=before)
            raise


def on_the_device(file: str, task: str, state: str) -> None:
    """Learn a task, and write the state."""
    with np.load(task, allow_pickle=False) as columns:  # noqa: TID251 (it is said)
        images, labels = columns["images"], columns["labels"]
    device = Device(file)
    device.run("begin_task")
    starts = range(0, len(labels), BATCH)
    for number, start in enumerate(starts):
        if number == len(starts) // 2:  # switched off and on again
            Path(state).write_bytes(device.run("save")["state"].tobytes())
            device = Device(file)
            assert device.run("restore", state=np.fromfile(state, np.uint8))["ok"]
        device.learn(images[start : start + BATCH], labels[start : start + BATCH])
    device.run("end_task")
    Path(state).write_bytes(device.run("save")["state"].tobytes())


def main() -> None:
    import keras

    import nccl_tf

    parser = argparse.ArgumentParser()
    parser.add_argument("--dataset", default="split_digits")
    stream = nccl_tf.load_stream(parser.parse_args().dataset, head="single", max_tasks=3)
    # Outputs for all classes: what has not been seen is masked.
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    memory = nccl_tf.ReservoirMemory(100, stream.example_shape)
    learner = nccl_tf.ExperienceReplay(network, memory, stream_mask="seen")
    learner.compile(keras.optimizers.SGD(0.1), metrics=["accuracy"])
    for task in stream[:2]:
        learner.fit(task, epochs=3, verbose=0)

    def accuracies() -> str:
        shares = (
            learner.evaluate(task, verbose=0, return_dict=True)["accuracy"] for task in stream
        )
        return " ".join(f"{share:6.1%}" for share in shares)

    print(f"accuracy on the three tasks, in Keras:  {accuracies()}")
    with tempfile.TemporaryDirectory() as folder:
        file, task, state = (Path(folder) / name for name in ("a.tflite", "task.npz", "state"))
        made = nccl_tf.export_learner(learner, file, batch_size=BATCH)
        print(f"the file has {made.bytes:,} bytes, its steps differ by {made.difference:.0e}")
        images, labels = (np.concatenate([column] * 3) for column in stream[2].train)
        np.savez(task, images=images, labels=labels)
        subprocess.run([sys.executable, __file__, file, task, state], check=True)
        nccl_tf.load_device_state(learner, state)
    print(f"with what the device has learned:       {accuracies()}")


if __name__ == "__main__":
    if sys.argv[3:]:
        on_the_device(*sys.argv[1:])
    else:
        main()
