"""Steps on a GPU: plain, in chunks under XLA, and in PyTorch, eager and as one CUDA graph.

python -m benchmarks.gpu [--networks=dense,resnet20,resnet64] [--methods=er_ring,nccl_ring,...]
    [--batches=10,128] [--precisions=float32,tensorfloat32] [--output=FILE] [--turns=FILE]

A table has milliseconds a step, medians, the seconds of the first call of a chunk, compiling
included, and the share of a call's time in which some kernel runs. A dash stands for a side that
there is not: PyTorch's where it is not installed. `--output` keeps each row as a line of JSON as
soon as it is measured, and a row that the file has of this device and commit is not measured again;
`python -m docs.make.speed FILE` puts them on the page. With `--turns`, several processes that are
given the same file compile side by side, which takes most of the time, and measure one after
another, when none compiles. Without a GPU the command says so and ends;
`--device=cpu` is for trying it out, with small numbers (`--steps=5 --networks=dense --batches=10`).
"""

import argparse
import contextlib
import fcntl
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import nccl_tf
from benchmarks.side_by_side import (
    examples,
    fitted,
    full_memory,
    full_ring,
    measure,
    readable,
    table,
)
from nccl_tf.arguments.choices import TENSORFLOAT32
from nccl_tf.errors import UserError
from nccl_tf.experiment.run.devices import use_device, use_precision
from nccl_tf.records.provenance import describe_devices, package_source, versions

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "er_ring": ("er_ring", {}),
    "nccl_ring": ("nccl_ring", {}),
    "nccl_ring_two_tapes": ("nccl_ring", {"gradients": "two_tapes"}),
    "agem": ("agem", {}),
    "derpp": ("derpp", {}),
    "mir": ("mir", {}),
}
"""The method of each row, and options of its learner."""
SIDES = "plain", "chunk", "eager PyTorch", "PyTorch, one CUDA graph"
MORE = 10
"""Steps in a call of a side that a GPU runs as one program, for each of the others'."""
TASKS, RATE = 17, 0.03
_PICOSECONDS = 1e-12


class Network(NamedTuple):
    """A network and the task that it learns.

    Attributes:
        build: From the shape of an image and the number of classes to ours.
        shape: Of an image.
        per_task: Classes of a task.
        hidden: Widths of the hidden layers; () for a ResNet.
        n_f: Filters of a ResNet's first stage.
        steps: Steps in one call of a side that starts operations one by one.
    """

    build: Callable[..., keras.Model]
    shape: tuple[int, int, int]
    per_task: int
    hidden: tuple[int, ...]
    n_f: int
    steps: int

    @property
    def heads(self) -> list[range]:
        """The classes of every task."""
        return [range(self.per_task * k, self.per_task * (k + 1)) for k in range(TASKS)]

    @property
    def classes(self) -> int:
        """Number of logits."""
        return self.per_task * TASKS


NETWORKS = {
    "dense": Network(nccl_tf.networks.mlp, (28, 28, 1), 5, (256, 256), 0, 200),
    "resnet20": Network(nccl_tf.networks.resnet18_reduced, (32, 32, 3), 5, (), 20, 50),
    "resnet64": Network(nccl_tf.networks.resnet18, (32, 32, 3), 5, (), 64, 50),
}


def slots_for(network: Network, batch: int) -> int:
    """Slots of a class, so that the ended tasks hold MIR's candidates, five memory batches."""
    return max(5, -(-5 * batch // (network.per_task * (TASKS - 1))))


def ours(network: Network, name: str, batch: int, steps: int, xla: bool) -> Callable[[], None]:
    """A call that fits so many steps of the last task."""
    method, options = METHODS[name]
    heads, slots = network.heads, slots_for(network, batch)
    memory = full_memory(method, heads, network.shape, network.classes, slots)
    candidates = {"candidates": 5 * batch} if method == "mir" else {}
    learner = nccl_tf.get_method(method).learner_class()(
        network.build(network.shape, network.classes, seed=0), memory, heads=heads,
        memory_batch_size=batch, **candidates, **options,
    )  # fmt: skip
    learner.compile(keras.optimizers.SGD(RATE), jit_compile=xla)
    return fitted(learner, examples(steps, network.shape, heads[-1], batch), heads, batch)


def torchs(
    network: Network, name: str, batch: int, steps: int, graph: bool, device: str
) -> Callable[[], None]:
    """The same call in PyTorch, eager or as one CUDA graph a step."""
    import torch

    from benchmarks import peers

    for part in (torch.backends.cuda.matmul, torch.backends.cudnn):
        part.allow_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    if network.hidden:
        model = peers.mlp(int(np.prod(network.shape)), network.classes, network.hidden)
    else:
        model = peers.resnet(network.classes, network.n_f)
    heads = network.heads
    memory = readable(full_ring(heads, network.shape, slots_for(network, batch)))
    stream = examples(steps, network.shape, heads[-1], batch)
    make = peers.GraphStep if graph else peers.TorchStep
    side = make(model, peers.Task(stream, memory, heads, batch), RATE, METHODS[name][0], device)

    def call() -> None:
        for number in range(steps):
            side.step(number)
        if device != "cpu":
            torch.cuda.synchronize()

    return call


@contextlib.contextmanager
def held(path: Path | None, alone: bool) -> Iterator[None]:
    """Hold a file, alone or beside others that do not ask for it alone; nothing without one."""
    if path is None:
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


def compare(
    network: Network, name: str, batch: int, rounds: int, device: str, turns: Path | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure the sides of a method.

    Args:
        network: What learns.
        name: Of the method, as in `METHODS`.
        batch: Examples of the stream, and of the memory.
        rounds: Of all sides.
        device: `gpu` or `cpu`.
        turns: A file by which processes measure one after another; None for one process.

    Returns:
        Milliseconds a step of each side that there is; and the seconds of the first call of a
        chunk, with the shares of a call's time in kernels, by the heads of their columns.
    """
    with held(turns, alone=False):
        sides, more = prepare(network, name, batch, device)
    with held(turns, alone=True):
        seconds = measure(sides, rounds)
        for side in ("plain", "chunk"):
            share = kernel_share(sides[side])
            if share is not None:
                more[f"{side} in kernels"] = share
    steps = dict(zip(SIDES, (network.steps, MORE * network.steps) * 2, strict=True))
    return {side: 1e3 * seconds[side] / steps[side] for side in seconds}, more


def prepare(
    network: Network, name: str, batch: int, device: str
) -> tuple[dict[str, Callable[[], None]], dict[str, float]]:
    """The sides of a method, each called once, and the seconds of the first call of a chunk."""
    many = MORE * network.steps
    sides = {
        "plain": ours(network, name, batch, network.steps, False),
        "chunk": ours(network, name, batch, many, True),
    }
    if importlib.util.find_spec("torch") is not None:
        where = "cpu" if device == "cpu" else "cuda"
        sides["eager PyTorch"] = torchs(network, name, batch, network.steps, False, where)
        sides["PyTorch, one CUDA graph"] = torchs(network, name, batch, many, True, where)
    seconds = {}
    for side, call in sides.items():
        start = time.perf_counter()
        call()
        seconds[side] = time.perf_counter() - start
    return sides, {"first chunk, s": seconds["chunk"]}


def print_table(
    name: str,
    network: Network,
    methods: Sequence[str],
    batch: int,
    rounds: int,
    device: str,
    keep: "Rows | None" = None,
    turns: Path | None = None,
) -> None:
    """Measure and print the steps of one network at one size of the batches."""
    columns = ("first chunk, s", "plain in kernels", "chunk in kernels")
    rounded = tf.config.experimental.tensor_float_32_execution_enabled()
    rows = []
    for method in methods:
        if method == "nccl_ring_two_tapes" and not network.hidden:
            continue  # as nccl_ring: rows are a way of dense networks
        key = {"network": name, "batch": batch, "method": method, "tensorfloat32": rounded}
        found = keep.find(key) if keep else None
        if found is None:
            times, more = compare(network, method, batch, rounds, device, turns)
            if keep:
                keep.add(key, times, more)
        else:
            times, more = found["milliseconds"], found["more"]
        cells = [f"{times[side]:.3f}" if side in times else "-" for side in SIDES]
        cells += [f"{more[column]:.2f}" if column in more else "-" for column in columns]
        rows.append([method, *cells])
        print(*rows[-1], sep=", ", flush=True)
    title = f"{name}, batches of {batch} and {batch}, TF32 {'on' if rounded else 'off'}: ms a step"
    table(title, ("method", *SIDES, *columns), rows)


class Rows:
    """The rows of a file, a line of JSON each, of every device and commit that measured.

    Args:
        path: The file; is made with the first row.
        torch: Whether PyTorch's sides are measured too: a row without them is measured again then.
    """

    def __init__(self, path: Path, torch: bool) -> None:
        self.path = path
        self.torch = torch
        self.source = {"device": describe_devices(), "commit": package_source()["commit"]}
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self._rows = [json.loads(line) for line in lines]

    def find(self, key: dict[str, Any]) -> dict[str, Any] | None:
        """The row of this key, measured on this device and commit; None where there is none."""
        wanted = key | self.source
        for row in self._rows:
            has_torch = SIDES[2] in row["milliseconds"]
            if all(row[name] == wanted[name] for name in wanted) and has_torch >= self.torch:
                return row
        return None

    def add(self, key: dict[str, Any], times: dict[str, float], more: dict[str, float]) -> None:
        """Write a row to the end of the file."""
        row = {**key, **self.source, "versions": versions(), "milliseconds": times, "more": more}
        self._rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def kernel_share(call: Callable[[], None]) -> float | None:
    """The part of one call's time in which some kernel runs; None where no GPU does.

    Args:
        call: Is called once, traced; what it builds at first it has built before.
    """
    # What the profiler's own start and end take is none of the call's time.
    with tempfile.TemporaryDirectory() as folder:
        options = tf.profiler.experimental.ProfilerOptions(python_tracer_level=0)
        tf.profiler.experimental.start(folder, options)
        start = time.perf_counter()
        call()
        seconds = time.perf_counter() - start
        tf.profiler.experimental.stop()
        (path,) = Path(folder).rglob("*.xplane.pb")
        space = xplane_pb2.XSpace.FromString(path.read_bytes())
    busy = kernel_seconds(space)
    return None if busy is None else busy / seconds


def kernel_seconds(space: Any) -> float | None:
    """Seconds of a trace (an XSpace) in which some kernel runs; None where no GPU is in it."""
    planes = [plane for plane in space.planes if plane.name.startswith("/device:GPU")]
    if not planes:
        return None
    # The other lines of a GPU's plane repeat the streams' events by operation and by module.
    lines = [line for plane in planes for line in plane.lines if line.name.startswith("Stream")]
    spans = [
        (1000 * line.timestamp_ns + event.offset_ps, event.duration_ps)
        for line in lines
        for event in line.events
    ]
    return _PICOSECONDS * covered((start, start + length) for start, length in spans)


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """How much of an axis spans (start, end) cover together, where they may overlap."""
    total, end = 0, None
    for first, last in sorted(spans):
        begin = first if end is None else max(first, end)
        total += max(0, last - begin)
        end = last if end is None else max(end, last)
    return total


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def several(text: str) -> list[str]:
        return [part for part in text.split(",") if part]

    parser.add_argument("--networks", type=several, default=list(NETWORKS))
    parser.add_argument("--methods", type=several, default=list(METHODS))
    parser.add_argument("--batches", type=several, default=["10", "128"])
    parser.add_argument("--precisions", type=several, default=["float32", TENSORFLOAT32])
    parser.add_argument("--steps", type=int, help="in a call, in place of the network's")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--output", type=Path, help="file of rows, a line of JSON each")
    parser.add_argument("--turns", type=Path, help="file by which processes measure in turns")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    asked = arguments(argv)
    if asked.device == "gpu" and not tf.config.list_physical_devices("GPU"):
        print("TensorFlow finds no GPU on this machine: there is nothing to measure")
        return
    use_device(asked.device)
    print(describe_devices())
    torch = importlib.util.find_spec("torch") is not None
    keep = Rows(asked.output, torch) if asked.output else None
    for precision in asked.precisions:
        try:
            use_precision(precision)
        except UserError as error:
            print(f"Left out: {error}")
            continue
        for name in asked.networks:
            network = NETWORKS[name]
            network = network._replace(steps=asked.steps or network.steps)
            for batch in map(int, asked.batches):
                print_table(
                    name, network, asked.methods, batch, asked.rounds, asked.device, keep,
                    asked.turns,
                )  # fmt: skip


if __name__ == "__main__":
    main()
