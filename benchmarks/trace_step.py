"""What one step of a method is: the functions that `fit` traces, in order, or its kernels.

python -m benchmarks.trace_step [--method=nccl_ring] [--gradients=two_tapes] [--kernels]

`--kernels` counts the operations that TensorFlow runs for a step outside of XLA, by the line of the
package that made each: on a GPU every one of them is a launch. The setting is that of
`benchmarks.one_step`: a dense network, batches of 10 and 10, a single head, the second task, whose
labels the host has checked.
"""

import argparse
import collections
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import nccl_tf
from benchmarks.one_step import BATCH, CLASSES, learner_of
from nccl_tf.learner.data import FitData, HostFacts
from nccl_tf.memories.kinds import get_memory

PACKAGE = f"{Path(nccl_tf.__file__).parent}{os.sep}"


class Entered:
    """Functions by file and name, with how deep they stand below `train_step`."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], int] = {}
        self._depth = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function of `sys.setprofile`."""
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE):
            return
        is_step = code.co_name == "train_step"
        if event == "return":
            self._depth -= bool(self._depth)
        elif self._depth or is_step:
            if not code.co_name.startswith("<"):
                key = code.co_filename.removeprefix(PACKAGE), code.co_qualname
                self.functions.setdefault(key, self._depth)
            self._depth += 1

    @property
    def files(self) -> list[str]:
        """The files of the package, in the order in which a step comes by them."""
        return list(dict.fromkeys(file for file, _ in self.functions))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notes what is called in the body."""
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)


def trace(method: str, **arguments: Any) -> Entered:
    """The functions that a step of a method enters in a `fit` of a dense network."""
    row = nccl_tf.get_method(method)
    stream = nccl_tf.load_stream("split_digits", max_tasks=1)
    network = nccl_tf.networks.mlp(stream.example_shape, stream.num_classes, pixels=stream.pixels)
    if row.memory:
        arguments["memory"] = get_memory(row.memory).build(
            capacity=100, slots=5, rule="exact", seed=0, task_classes=stream.heads,
            example_shape=stream.example_shape,
        )  # fmt: skip
    learner = row.learner_class()(network, heads=stream.heads, **arguments)
    learner.compile(keras.optimizers.SGD(0.1))
    entered = Entered()
    with entered.watching():
        learner.fit(stream[0], verbose=0)
    return entered


def kernels(learner: Any, data: Iterable[Any]) -> collections.Counter[str]:
    """The operations that TensorFlow runs for a step, counted by their name and kind.

    Calls of 11 steps less calls of 1, by the profiler's trace of the host.

    Args:
        learner: A compiled learner whose task is open.
        data: Batches, 30 or more.
    """
    counts = []
    for steps in (1, 11):
        learner.steps_per_execution = steps
        learner.execution.discard_graphs()
        learner.make_train_function()
        learner.execution.known = HostFacts(labels_checked=True, has_weights=False)  # as of a task
        iterator = iter(data)
        learner.train_function(iterator)  # traces
        learner.train_function(iterator)
        with tempfile.TemporaryDirectory() as folder:
            options = tf.profiler.experimental.ProfilerOptions(
                host_tracer_level=3, python_tracer_level=0
            )
            tf.profiler.experimental.start(folder, options=options)
            learner.train_function(iterator)
            tf.profiler.experimental.stop()
            (path,) = Path(folder).rglob("*.xplane.pb")
            space = xplane_pb2.XSpace.FromString(path.read_bytes())
        counts.append(_operations(space))
    once, eleven = counts
    each = {name: (count - once[name]) / 10 for name, count in eleven.items()}
    return collections.Counter({name: round(n) for name, n in each.items() if round(n)})


def _operations(space: Any) -> collections.Counter[str]:
    """How often each "name:kind" ran on the host."""
    found: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if re.fullmatch(r"[\w./]+:\w+", name):  # not the executor's own events
                    found[name] += 1
    return found


def count_kernels(method: str, **arguments: Any) -> collections.Counter[str]:
    """The kernels of a step of a method on the dense network of `benchmarks.one_step`."""
    shape = (28, 28, 1)
    network = nccl_tf.networks.mlp(shape, CLASSES)
    learner = learner_of(method, shape, network, **arguments)
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (40 * BATCH, *shape), dtype=np.uint8)
    labels = random.integers(0, CLASSES, len(images)).astype(np.int32)
    learner.fit(images, labels, batch_size=BATCH, verbose=0)
    learner.begin_task(1)
    return kernels(learner, FitData(images, labels, batch_size=BATCH).batches())


def main() -> None:
    """Trace and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="nccl_ring")
    parser.add_argument("--gradients", choices=("auto", "two_tapes"))
    parser.add_argument("--kernels", action="store_true")
    asked = parser.parse_args()
    arguments = {"gradients": asked.gradients} if asked.gradients else {}
    if asked.kernels:
        found = count_kernels(asked.method, **arguments)
        for name, count in sorted(found.items()):
            print(f"{count:3d} {name}")
        print(f"{sum(found.values())} kernels a step")
        return
    entered = trace(asked.method, **arguments)
    for (file, function), depth in entered.functions.items():
        print(f"{'  ' * depth}{function}  ({file})")
    print(f"{len(entered.functions)} functions in {len(entered.files)} files")


if __name__ == "__main__":
    main()
