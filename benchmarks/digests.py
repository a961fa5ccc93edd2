"""Bit-for-bit digests of what every method learns in a short run, kept and compared.

python -m benchmarks.digests [--write] [--stream=digits|mnist] [--methods=a,b] [--float64]

Before a change that is to change no result, `--write` stores the digests below tests/fixtures;
after it the same command without `--write` compares, prints a line per difference and exits 1 if
there is one. Digests are equal only where processor and versions are, so they are written and
compared on one machine; the file names both. The process runs on one thread, which the environment
is told before TensorFlow is imported. `--float64` compares whole weight vectors after 200 steps in
float64 instead, to 1e-9 of the largest weight, and so does not ask for the same bits.
"""
# ruff: noqa: E402

import argparse
import hashlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ[name] = "1"

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.callbacks import StepRecord
from nccl_tf.experiment.config.options import Options
from nccl_tf.experiment.config.resolve import resolve
from nccl_tf.experiment.run.build import (
    build_learner,
    build_stream,
    task_learning_rates,
    training_parts,
)
from nccl_tf.experiment.run.evaluation import Evaluation

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures"
SEED = 1
TINY = {"max_tasks": 2, "examples_per_task": 250, "hidden": (32, 16)}
MULTI = ("er_ring", "nccl_ring", "agem", "nccl_reservoir", "supsup", "icarl")
MNIST = ("er_ring", "er_reservoir", "nccl_ring", "nccl_reservoir", "agem", "ewc")
FLOAT64 = (*MNIST, "mer", "gem", "mir_gmed")
FEW: dict[str, dict[str, Any]] = {
    "cn_dpm": {
        "hidden": None, "memory_size": 60, "vae_steps": 30, "classifier_steps": 30,
        "sleep_batch_size": 20, "log_alpha": 1.0,
    },
    "gdumb": {"passes": 3},
    "iid_offline": {"epochs": 2},
    # What was the default when digests were first stored.
    "lpr": {"lpr_examples": 100},
    "stable_agem": {"batch_size": 10},
    "stable_er_reservoir": {"batch_size": 10},
}  # fmt: skip


def runs_of(stream: str) -> dict[str, dict[str, Any]]:
    """The flags of each run by its name: the method, and its head where it is not alone."""
    if stream == "mnist":
        five = {"dataset": "permuted_mnist", "max_tasks": 5}
        return {name: {"method": name, **five} for name in MNIST}
    runs = {}
    for name, method in nccl_tf.METHODS.items():
        flags = {"method": name, **TINY, **FEW.get(name, {})}
        if method.unsupported_reason("permuted", "single") is None:
            runs[name] = flags | {"dataset": "permuted_digits"}
        if name in MULTI:
            runs[f"{name}-multi"] = flags | {"dataset": "split_digits", "head": "multi"}
    return runs


def digest_of(flags: dict[str, Any]) -> dict[str, Any]:
    """SHA-256 of the network's variables and of outputs, accuracies, and steps.csv's last row."""
    settings, options = resolve(flags), Options(record_every=20)
    stream = build_stream(settings, options, SEED)
    parts = training_parts(settings, stream)
    steps = [part.steps(settings.batch_size, settings.epochs) for part in parts]
    rates = task_learning_rates(settings, steps)
    learner = build_learner(settings, stream, SEED)
    learner.record_steps(options.record_every)
    evaluation = Evaluation(learner, stream)
    evaluation.evaluate_initial()
    with tempfile.TemporaryDirectory() as folder:
        record = StepRecord(Path(folder) / "steps.csv", every=options.record_every)
        for number, part in enumerate(parts):
            learner.optimizer.learning_rate = rates[number]
            batches = part.train_batches(settings.batch_size, seed=SEED, passes=settings.epochs)
            learner.fit(batches, task_id=part.task_id, shuffle=False, verbose=0, callbacks=[record])
            evaluation.evaluate_after(len(stream) - len(parts) + number, lambda: None)
        record.finish()
        sums = record.path.read_text().splitlines()[-1]
    inputs = next(iter(stream[0].test_batches(50)))[0]
    outputs = sha256([np.asarray(learner(inputs, training=False))])
    digest = sha256([variable.numpy() for variable in learner.network.variables])
    accuracy = [[None if np.isnan(a) else float(a) for a in row] for row in evaluation.matrix]
    return {"digest": digest, "outputs": outputs, "accuracy": accuracy, "sums": sums}


def sha256(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line for line in lines if line.startswith("model name")), platform.processor())
    cpu = cpu.split(": ")[-1]
    return {"threads": 1, "tensorflow": tf.__version__, "keras": keras.__version__, "cpu": cpu}


def network64(shape: tuple[int, ...], classes: int, input_dtype: str) -> keras.Model:
    seeds = [keras.initializers.GlorotUniform(seed=SEED + i) for i in range(2)]
    return keras.Sequential([
        keras.Input(shape, dtype=input_dtype),
        keras.layers.Rescaling(1 / 16, dtype="float64"),
        keras.layers.Flatten(dtype="float64"),
        keras.layers.Dense(16, "relu", kernel_initializer=seeds[0], dtype="float64"),
        keras.layers.Dense(classes, kernel_initializer=seeds[1], dtype="float64"),
    ])  # fmt: skip


def weights64(name: str) -> np.ndarray:
    """The weights, float64 [parameters], after 200 steps on two tasks."""
    stream = nccl_tf.load_stream("permuted_digits", seed=SEED, max_tasks=2)
    tasks = [tuple(task.train) for task in stream]
    shape = tasks[0][0].shape[1:]
    memory, input_dtype = {}, "uint8"
    if name.endswith("gmed"):
        input_dtype = "float32"
        memory["memory"] = nccl_tf.EditedReservoirMemory(60, shape, input_dtype, seed=SEED)
    elif name.endswith("ring") or name in ("agem", "gem"):
        memory["memory"] = nccl_tf.RingMemory(3, stream.task_classes, shape, seed=SEED)
    elif name != "ewc":
        memory["memory"] = nccl_tf.ReservoirMemory(60, shape, seed=SEED)
    method = nccl_tf.get_method(name).learner_class()
    more = {"memory_batch_size": 10} if memory and name != "gem" else {}
    network = network64(shape, stream.num_classes, input_dtype)
    learner = method(network, seed=SEED, **memory, **more)
    learner.compile(keras.optimizers.SGD(0.03 if name == "mer" else 0.1), metrics=["accuracy"])
    for task, (inputs, labels) in enumerate(tasks):
        learner.fit(
            inputs[:1000].astype(input_dtype), labels[:1000], batch_size=10, shuffle=False,
            task_id=task, verbose=0,
        )  # fmt: skip
    return np.concatenate([variable.numpy().ravel() for variable in learner.network.variables])


def differences64(write: bool, names: list[str]) -> list[str]:
    path = FOLDER / "float64_weights.npz"
    there = {} if write else np.load(path)
    here = {name: weights64(name) for name in names or FLOAT64}
    if write:
        np.savez_compressed(path, **here)
    lines = []
    for name in () if write else here:
        gap = np.max(np.abs(here[name] - there[name])) / np.max(np.abs(there[name]))
        print(f"{name}: largest difference {gap:.2g} of the largest weight")
        if not gap <= 1e-9:
            lines.append(f"{name}: the float64 weights differ by {gap:.2g}, expected 1e-9")
    return lines


def differences(write: bool, stream: str, names: list[str]) -> list[str]:
    path = FOLDER / f"digests_{stream}.json"
    here: dict[str, Any] = {"machine": machine(), "runs": {}}
    for name, flags in runs_of(stream).items():
        if names and flags["method"] not in names:
            continue
        keras.backend.clear_session()
        here["runs"][name] = digest_of(flags)
    if write:
        print(json.dumps(here))
        path.write_text(json.dumps(here, indent=1) + "\n")
        return []
    there = json.loads(path.read_text())
    if here["machine"] != there["machine"]:
        print(f"stored on {there['machine']}, here {here['machine']}", file=sys.stderr)
    return [
        f"{name}: {key} is {value}, stored {there['runs'].get(name, {}).get(key)}"
        for name, row in here["runs"].items()
        for key, value in row.items()
        if there["runs"].get(name, {}).get(key) != value
    ] + [f"{name}: not run" for name in there["runs"] if not names and name not in here["runs"]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--stream", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=[])
    asked = parser.parse_args()
    if asked.write and asked.methods:
        parser.error("--write stores all methods: leave --methods out")
    if asked.float64:
        lines = differences64(asked.write, asked.methods)
    else:
        lines = differences(asked.write, asked.stream, asked.methods)
    print("\n".join(lines) or "no difference", file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
