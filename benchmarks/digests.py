"""Digests of what every method learns in short runs, kept in a file and compared by name.

python -m benchmarks.digests [--methods=er_ring,gem] [--kinds=plain,xla] [--compare FILE]
python -m benchmarks.digests --write [FILE]
python -m benchmarks.digests --float64 [--xla] [--device=gpu] [...]

`--write` stores the digests, by default below tests/fixtures; without it they are compared with
those stored: a line per difference, and exit code 1 if there is one. For those of another checkout
run this file on it: `PYTHONPATH=OTHER python benchmarks/digests.py --write FILE`.

Compared are, by name: weights and statistics of the network, rows and counters of the memories, the
optimizer's slots, the method's own variables, logits, the accuracy matrix and the step log. A value
is a hash of the bytes with the Euclidean norm, which tells how far apart two are. Bits are equal
only where processor and versions are, which the file names. The process runs on one thread.

`--float64` compares the network's weights and some logits after 200 steps in float64 instead, to
1e-9 of the largest number, for a change that moves rounding; with `--xla`, of chunks of steps as
one program, and with `--device=gpu`, of a GPU. The stored numbers are those of single steps on a
processor.
"""

import argparse
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    if "--device=gpu" not in sys.argv:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"

import keras
import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.learner.columns import extras_of, with_logits
from nccl_tf.learner.options.step_log import StepLog
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.cn_dpm.networks import mlp_experts

FOLDER = Path(__file__).parents[1] / "tests" / "fixtures"
SEED = 1
FEW: dict[str, dict[str, Any]] = {
    "cn_dpm": {"vae_steps": 15, "classifier_steps": 15, "sleep_batch_size": 20, "log_alpha": 1.0},
    "gdumb": {"passes": 3},
    "lpr": {"lpr_examples": 100},
    "ranpac": {"projected_features": 40},
}
SOME = {
    "multi": (
        "er_ring", "nccl_ring", "agem", "nccl_reservoir", "supsup", "icarl", "lwf", "ewc",
    ),
    "single": ("er_ring", "nccl_reservoir", "ewc", "mer", "mir"),  # steps in a call of the graph
    "batch": ("er_reservoir", "nccl_ring", "si"),  # `train_on_batch`
    "conv": ("er_ring", "nccl_reservoir", "agem", "mer", "derpp"),  # with batch norm
    "xla": ("er_ring", "nccl_ring", "ewc"),
    "half": ("er_ring", "nccl_ring", "ewc", "mer"),
    "replicas": ("finetune", "er_reservoir", "nccl_ring", "agem", "mega1", "gec"),
    "resume": ("er_ring", "nccl_reservoir", "ewc", "mir", "mas", "gdumb", "mc_sgd"),
    "grown": ("er_reservoir", "ewc", "lwf"),
    "command": ("nccl_ring",),
}  # fmt: skip
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "averaged": ("er_reservoir", {"average_weights": 0.9}),
    "decayed": ("nccl_ring", {"rate_decay": 0.7}),
    "decayed_by_steps": ("agem", {"rate_decay": 0.7, "rate_decay_steps": 15}),
    "dark": ("nccl_reservoir", {"dark": 0.5}),
    "present": ("er_reservoir", {"stream_mask": "present"}),
    "seen": ("finetune", {"stream_mask": "seen"}),
    "two_tapes": ("nccl_ring", {"gradients": "two_tapes"}),
    "by_layer": ("nccl_reservoir", {"grad_scope": "layer"}),
    "delta": ("nccl_ring", {"delta": 0.05, "beta_max": 0.1}),
}
KINDS = ("plain", "option", *SOME)


class Run(NamedTuple):
    """A method's row of the registry, what is special about its run, and options of the learner."""

    row: Any
    kind: str = "plain"
    xla: bool = False
    options: dict[str, Any] = {}  # noqa: RUF012

    @property
    def is_multi(self) -> bool:
        return self.kind == "multi" or self.row.name == "icarl"


def all_runs() -> dict[str, Run]:
    """The runs by name."""
    rows = nccl_tf.METHODS
    single = [row for row in rows.values() if not row.unsupported_reason("permuted", "single")]
    found = {row.name: Run(row) for row in single}
    for kind, names in SOME.items():
        found |= {f"{kind}:{name}": Run(rows[name], kind) for name in names}
    for name, (method, options) in OPTIONS.items():
        found[f"option:{name}"] = Run(rows[method], "option", options=options)
    return found


@functools.cache
def load(name: str, head: str, examples: int | None) -> Any:
    return nccl_tf.load_stream(name, head=head, seed=SEED, max_tasks=2, examples_per_task=examples)


def stream_of(run: Run) -> Any:
    if run.is_multi or run.kind == "grown":
        return load("split_digits", "multi" if run.is_multi else "single", 250)
    return load("permuted_digits", "single", 1000 if run.kind == "float64" else 250)


def network_of(run: Run, stream: Any, classes: int, numbers: dict[str, Any]) -> keras.Model:
    pixels = {"pixels": stream.pixels, "seed": SEED}
    if "mlp_experts" in run.row.networks:
        sizes: dict[str, Any] = {"widths": (8, 4), "latent": 2, "samples": 2, "max_experts": 4}
        return mlp_experts(stream.example_shape, classes, **pixels, **sizes)
    if run.kind not in ("conv", "float64"):
        shape, hidden = stream.example_shape, (32, 16)
        return nccl_tf.networks.mlp(shape, classes, hidden=hidden, **pixels, **numbers)
    drawn = [keras.initializers.GlorotUniform(seed=SEED + i) for i in range(3)]
    layers: list[Any] = [keras.Input(stream.example_shape), keras.layers.Rescaling(1 / 16)]
    if run.kind == "conv":
        layers.append(keras.layers.Conv2D(4, 3, kernel_initializer=drawn[2], use_bias=False))
        layers += [keras.layers.BatchNormalization(momentum=0.9), keras.layers.ReLU()]
    layers += [keras.layers.Flatten(), keras.layers.Dense(8, "relu", kernel_initializer=drawn[0])]
    return keras.Sequential([*layers, keras.layers.Dense(classes, kernel_initializer=drawn[1])])


def memory_of(run: Run, stream: Any, classes: int) -> Any:
    dark = {**run.row.options, **run.options}.get("dark", 0.0)
    extras = extras_of(with_logits(run.row.learner_class().columns, dark), classes)
    return get_memory(run.row.memory).build(
        capacity=60, slots=3 if run.row.memory == "ring" else None, rule="exact", seed=SEED,
        task_classes=stream.task_classes, example_shape=stream.example_shape,
        example_dtype=stream.example_dtype, **({"extras": extras} if extras else {}),
    )  # fmt: skip


def learner_of(run: Run, stream: Any, classes: int | None = None) -> Any:
    """A compiled learner, with the defaults of its method's row."""
    row = run.row
    numbers: dict[str, dict[str, Any]] = {p: {} for p in ("learner", "network", "optimizer")}
    for number in row.hyperparameters:
        numbers.setdefault(number.part, {})[number.name] = number.default
    classes = classes or stream.num_classes + sum(filter(None, numbers.get("outputs", {}).values()))
    arguments = {**numbers["learner"], **FEW.get(row.name, {}), **row.options, **run.options}
    if row.memory:
        arguments["memory"] = memory_of(run, stream, classes)
        arguments |= {"memory_batch_size": 10} if row.memory_batch else {}
    if row.takes_num_tasks:
        arguments["num_tasks"] = len(stream)
    policies = {"half": "mixed_float16", "float64": "float64"}
    keras.config.set_dtype_policy(policies.get(run.kind, "float32"))
    network = network_of(run, stream, classes, numbers["network"])
    learner = row.learner_class()(network, heads=stream.heads, seed=SEED, **arguments)
    steps = {"single": 1, "resume": 5, "float64": 40}.get(run.kind)
    learner.compile(
        keras.optimizers.SGD(row.learning_rates.mnist, **numbers["optimizer"]),
        metrics=["accuracy"], jit_compile=run.xla or run.kind == "xla", steps_per_execution=steps,
    )  # fmt: skip
    keras.config.set_dtype_policy("float32")
    learner.record_steps(20)
    return learner


def learn(run: Run, **arguments: Any) -> tuple[Any, Any]:
    """A learner that has learned the stream, and its accuracy matrix."""
    stream = stream_of(run)
    learner = learner_of(run, stream)
    result = nccl_tf.learn(
        learner, stream, batch_size=10, epochs=min(run.row.epochs, 2), seed=SEED,
        joint=run.row.joint, verbose=0, **arguments,
    )  # fmt: skip
    return learner, result.matrix


@functools.cache
def strategy() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def learn_on_replicas(run: Run) -> tuple[Any, Any]:
    with strategy().scope():
        return learn(run)


class Killed(Exception):
    """In place of a signal."""


class Kill(keras.callbacks.Callback):
    """Ends a run after so many updates; it has a state, so that backups split a task."""

    def __init__(self, updates: float):
        super().__init__()
        self.updates = updates

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if int(self.model.optimizer.iterations.numpy()) >= self.updates:
            raise Killed

    def state(self) -> None: ...

    def restore(self, state: None) -> None: ...


def learn_with_a_kill(run: Run) -> tuple[Any, Any]:
    """Killed in the second task; a new learner resumes from the last backup."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            learn(run, backup_dir=folder, backup_every=0, callbacks=[Kill(35)])
        except Killed:
            keras.backend.clear_session()
        return learn(run, backup_dir=folder, backup_every=0, callbacks=[Kill(float("inf"))])


def learn_by_batches(run: Run) -> tuple[Any, Any]:
    stream, rows = stream_of(run), []
    learner = learner_of(run, stream)
    for task in stream:
        for batch in task.train_batches(10, seed=SEED):
            learner.train_on_batch(*batch, task_id=task.task_id)
        learner.end_task()
        rows.append([learner.accuracy(*each.test, each.task_id) for each in stream])
    return learner, rows


def learn_and_grow(run: Run) -> tuple[Any, Any]:
    """Two classes, and then two more."""
    stream = stream_of(run)
    learner = learner_of(run, stream, classes=2)
    for number, task in enumerate(stream):
        if number:
            learner.add_classes(2)
        inputs, labels = tuple(task.train)[:2]
        labels = np.searchsorted(sorted(task.classes), labels) + 2 * number
        learner.fit(inputs, labels, batch_size=10, shuffle=False, verbose=0)
    return learner, []


def run_command(run: Run) -> dict[str, str]:
    """The files that a run of the command writes."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--dataset=permuted_digits", "--max_tasks=2", "--examples_per_task=250"]
        flags += [f"--method={run.row.name}", "--hidden=32,16", f"--output_dir={folder}"]
        program = [sys.executable, "-c", "from nccl_tf.__main__ import main; main()"]
        subprocess.run([*program, *flags], check=True, capture_output=True)
        (record,), (steps,) = (Path(folder).rglob(f) for f in ("result.json", "steps.csv"))
        matrix = json.loads(record.read_text())["accuracy_matrix"]
        return {"accuracy": json.dumps(matrix), "log": steps.read_text().splitlines()[-1]}


def variables_of(part: Any) -> list[Any]:
    """Those of a network, a memory or an optimizer."""
    return list(part.variables)


def state_of(learner: Any) -> dict[str, np.ndarray]:
    """Arrays by names that mean the same in every checkout.

    "network/" and the path, "memory/" and "sample/" and the column or counter, "optimizer/" and
    "method/" and the variable's own name.
    """
    groups = {
        "network": variables_of(learner.network),
        "optimizer": variables_of(learner.optimizer),
    }
    found = {f"network/{v.path}": v.numpy() for v in groups["network"]}
    for part in ("memory", "sample"):
        memory = getattr(learner, part, None)
        if memory is None:
            continue
        # As they are read, however they are held, without the row that stands for no slot.
        rows = memory.rows(tf.range(memory.capacity), tf.ones(memory.capacity))._asdict()
        columns = {**(rows.pop("extras") or {}), **rows}
        found |= {f"{part}/{name}": np.asarray(columns[name]) for name in {*columns} - {"weights"}}
        groups[part] = variables_of(memory)
    known = {id(variable) for group in groups.values() for variable in group}
    groups["method"] = [v for v in learner.variables if id(v) not in known]
    read = set(found)
    for group in ("memory", "sample", "optimizer", "method"):
        for variable in groups.get(group, ()):
            name = f"{group}/{variable.path.split('/')[-1]}"
            if name not in read:
                name += "'" * sum(key.rstrip("'") == name for key in found)
                found[name] = variable.numpy()
    return found


def digest(array: np.ndarray) -> str:
    if array.dtype == np.int32:
        array = array.astype(np.int64)  # the values count, not how wide they are kept
    head = f"{array.dtype} {array.shape}".encode()
    norm = np.linalg.norm(array.astype(np.float64).ravel())
    return f"{hashlib.sha256(head + array.tobytes()).hexdigest()[:16]} {norm:.9g}"


def outputs_of(learner: Any, run: Run) -> np.ndarray:
    """Logits [50, classes] of test examples of the first task."""
    return np.asarray(learner(stream_of(run)[0].test[0][:50], training=False))


def digests_of(run: Run) -> dict[str, str]:
    """The compared values of a run, by name."""
    keras.backend.clear_session()
    if run.kind == "command":
        return run_command(run)
    special = {
        "replicas": learn_on_replicas, "resume": learn_with_a_kill, "batch": learn_by_batches,
        "grown": learn_and_grow,
    }  # fmt: skip
    learner, matrix = special.get(run.kind, learn)(run)
    found = {k: digest(v) for k, v in sorted(state_of(learner).items())}
    found |= {
        "outputs": digest(outputs_of(learner, run)),
        "accuracy": str(np.array(matrix).tolist()),
    }
    log = learner.option(StepLog).take(0, False)[-1]
    return {**found, "log": ",".join(f"{value:.9g}" for value in log)}


def numbers64(run: Run, xla: bool) -> np.ndarray:
    """float64 [n], the network's weights and some logits after 200 steps on two tasks."""
    keras.backend.clear_session()
    run = run._replace(kind="float64", xla=xla)
    learner, _ = learn(run)
    outputs = outputs_of(learner, run)
    parts = [v.numpy() for v in variables_of(learner.network)]
    parts.append(np.where(outputs > -1e8, outputs, 0))  # without those that are masked
    return np.concatenate([part.ravel() for part in parts])


def machine() -> str:
    info = (
        Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    )
    cpu = re.findall(r"^(?:model name|cpu family|model|stepping)\s*: (.*)$", info, re.M)[:4]
    return f"TensorFlow {tf.__version__}, Keras {keras.__version__}, {' '.join(cpu)}, one thread"


def differences(here: Any, there: Any) -> list[str]:
    """Lines on what differs in a run: digests by name, or float64 numbers."""
    if isinstance(here, dict):
        pairs = {name: (here.get(name), there.get(name)) for name in {**there, **here}}
        return [f"{n} is {new}, stored {old}" for n, (new, old) in pairs.items() if new != old]
    gap = np.max(np.abs(here - there)) / np.max(np.abs(there))
    print(f"  largest difference {gap:.2g} of the largest number")
    return [] if gap <= 1e-9 else [f"the numbers differ by {gap:.2g}, expected 1e-9"]


def main() -> int:
    def several(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", nargs="?", const="", metavar="FILE")
    parser.add_argument("--compare", metavar="FILE")
    parser.add_argument("--float64", action="store_true")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--xla", action="store_true", help="chunks of steps; with --float64")
    parser.add_argument("--methods", type=several, default=[])
    parser.add_argument("--kinds", type=several, default=[], help=str(KINDS))
    asked = parser.parse_args()
    if asked.write == "" and (asked.methods or asked.kinds):
        parser.error("--write without FILE stores all runs: leave --methods and --kinds out")
    cpu, *_ = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    usual = FOLDER / ("float64.npz" if asked.float64 else "digests.json")
    path, stored = Path(asked.write or asked.compare or usual), None
    if asked.write is None:
        stored = np.load(path) if asked.float64 else json.loads(path.read_text(encoding="utf-8"))
        print(f"stored: {stored['machine']}")
    print(f"here: {machine()}, {nccl_tf.__file__}")
    runs = all_runs()
    if asked.float64:
        rows = [
            r
            for r in nccl_tf.METHODS.values()
            if not (asked.xla and r.learner_class().why_not("jit_compile"))
        ]
        runs = {row.name: Run(row) for row in rows}
    runs = {
        name: run for name, run in runs.items()
        if (not asked.methods or run.row.name in asked.methods)
        and (not asked.kinds or run.kind in asked.kinds)
    }  # fmt: skip
    found: dict[str, Any] = {"machine": np.array(machine()) if asked.float64 else machine()}
    count = 0
    for name, run in runs.items():
        start = time.process_time()
        found[name] = numbers64(run, asked.xla) if asked.float64 else digests_of(run)
        print(f"{name}: {time.process_time() - start:.1f} s, {len(found[name])} values", flush=True)
        if stored is not None:
            lines = differences(found[name], stored[name]) if name in stored else ["is not stored"]
            print("".join(f"  {line}\n" for line in lines), end="", flush=True)
            count += len(lines)
        elif not asked.float64:
            path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if stored is None and asked.float64:
        np.savez_compressed(path, **found)
    print(f"{count or 'no'} differences, {time.process_time():.0f} s of a processor")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
