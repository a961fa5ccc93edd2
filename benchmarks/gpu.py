"""Steps on a GPU: ER, A-GEM, NCCL and GEM against eager PyTorch on the same card, XLA off and on,
the share of a call's time in kernels, and one cell each of the tables T7 and T8.

python -m benchmarks.gpu [--networks=dense,resnet20,resnet64] [--methods=er,agem,nccl,gem]
    [--batches=10,32,128,512] [--cells=T7,T8] [--manual_dir=FOLDER_OF_MINI_IMAGENET]

Without a GPU it says so and ends; without PyTorch it leaves PyTorch's sides out. `--device=cpu` is
for trying the command out, with small numbers.
"""

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import nccl_tf
from benchmarks.side_by_side import examples, fitted, full_ring, measure, readable, report
from nccl_tf.errors import UserError
from nccl_tf.experiment.run.console import Console
from nccl_tf.experiment.run.devices import use_device
from nccl_tf.experiment.run.train import Run, train_seed
from nccl_tf.records.options import Options
from nccl_tf.records.provenance import describe_devices
from nccl_tf.reports.paper.parity import select_cells

METHODS = {
    "er": nccl_tf.ExperienceReplay,
    "agem": nccl_tf.AGEM,
    "nccl": nccl_tf.NCCL,
    "gem": nccl_tf.GEM,
}
CELLS = {"T7": "split_mini_imagenet", "T8": "split_cifar100"}
"""The data set of each table."""
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
        steps: Steps in one call.
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
    "dense": Network(nccl_tf.networks.mlp, (28, 28, 1), 5, (256, 256), 0, 100),
    "resnet20": Network(nccl_tf.networks.resnet18_reduced, (32, 32, 3), 5, (), 20, 10),
    "resnet64": Network(nccl_tf.networks.resnet18, (32, 32, 3), 5, (), 64, 10),
}


def slots_for(network: Network, batch: int) -> int:
    """Slots of a class, so that the ended tasks hold a memory batch."""
    return max(5, -(-batch // (network.per_task * (TASKS - 1))))


def ours(network: Network, method: str, batch: int, xla: bool) -> Callable[[], None]:
    """A call that fits the steps of the last task."""
    heads = network.heads
    ring = full_ring(heads, network.shape, slots_for(network, batch))
    size = {} if method == "gem" else {"memory_batch_size": batch}
    model = network.build(network.shape, network.classes, seed=0)
    learner = METHODS[method](model, ring, heads=heads, **size)
    learner.compile(keras.optimizers.SGD(RATE), jit_compile=xla, steps_per_execution=network.steps)
    part = examples(network.steps, network.shape, heads[-1], batch)
    return fitted(learner, part, heads, batch)


def torchs(network: Network, method: str, batch: int, device: str) -> Callable[[], None]:
    """The same call in eager PyTorch."""
    import torch

    from benchmarks import peers

    if network.hidden:
        model = peers.mlp(int(np.prod(network.shape)), network.classes, network.hidden)
    else:
        model = peers.resnet(network.classes, network.n_f)
    heads = network.heads
    memory = readable(full_ring(heads, network.shape, slots_for(network, batch)))
    stream = examples(network.steps, network.shape, heads[-1], batch)
    task = peers.Task(stream, memory, heads, batch)
    side = peers.TorchStep(model, task, RATE, method, device)

    def call() -> None:
        for number in range(network.steps):
            side.step(number)
        if device != "cpu":
            torch.cuda.synchronize()

    return call


def compare(name: str, methods: Sequence[str], batch: int, rounds: int, device: str) -> None:
    """Measure and print the steps of one network at one size of the batches."""
    network, has_torch = NETWORKS[name], importlib.util.find_spec("torch") is not None
    times, ratios = {}, {}
    for method in methods:
        sides = {"plain": ours(network, method, batch, False)}
        sides["XLA"] = ours(network, method, batch, True)
        if has_torch:
            where = "cpu" if device == "cpu" else "cuda"
            sides["eager PyTorch"] = torchs(network, method, batch, where)
        seconds = measure(sides, rounds)
        times |= {f"{method}, {side}": 1e3 * s / network.steps for side, s in seconds.items()}
        if has_torch:
            ratio = seconds["plain"] / seconds["eager PyTorch"]
            ratios[f"{method}, plain / eager PyTorch"] = ratio, None
        ratios[f"{method}, XLA / plain"] = seconds["XLA"] / seconds["plain"], None
        share = kernel_share(sides["plain"])
        if share is not None:
            ratios[f"{method}, share of a plain call in kernels"] = share, None
    report(f"A step of {name}, batches of {batch} and {batch}", times, ratios)


def run_cell(table: str, flags: dict[str, Any], options: dict[str, Any]) -> None:
    """Train one seed of a table's cell of NCCL, and print how long it took."""
    cell = next(c for c in select_cells(table, CELLS[table]) if c.method == "nccl_ring")
    with tempfile.TemporaryDirectory() as folder:
        run_options = Options(output_dir=Path(folder), **options)
        run = Run.from_flags({**cell.flags(), **flags}, run_options, 0)
        start = time.perf_counter()
        try:
            record, _ = train_seed(run, console=Console("none"))
        except UserError as error:
            print(f"The cell of {table} did not run: {error}")
            return
        seconds = time.perf_counter() - start
    accuracy = 100 * record["average_accuracy"]
    print(f"A cell of {table}, {cell.method}: {seconds:.0f} s, accuracy {accuracy:.1f} %")


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
    parser.add_argument("--batches", type=several, default=["10", "32", "128", "512"])
    parser.add_argument("--cells", type=several, default=list(CELLS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--data_dir")
    parser.add_argument("--manual_dir")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    asked = arguments(argv)
    if asked.device == "gpu" and not tf.config.list_physical_devices("GPU"):
        print("TensorFlow finds no GPU on this machine: there is nothing to measure")
        return
    use_device(asked.device)
    print(describe_devices())
    for name in asked.networks:
        for batch in map(int, asked.batches):
            compare(name, asked.methods, batch, asked.rounds, asked.device)
    places = {"data_dir": asked.data_dir, "manual_dir": asked.manual_dir}
    for table in asked.cells:
        run_cell(table, {}, {name: value for name, value in places.items() if value})


if __name__ == "__main__":
    main()
