"""The functions of the package that one step of a method enters while `fit` traces it, in order.

python -m benchmarks.trace_step [--method=nccl_ring] [--gradients=two_tapes]
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import keras

import nccl_tf
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


def main() -> None:
    """Trace and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="nccl_ring")
    parser.add_argument("--gradients", choices=("auto", "two_tapes"))
    asked = parser.parse_args()
    entered = trace(asked.method, **({"gradients": asked.gradients} if asked.gradients else {}))
    for (file, function), depth in entered.functions.items():
        print(f"{'  ' * depth}{function}  ({file})")
    print(f"{len(entered.functions)} functions in {len(entered.files)} files")


if __name__ == "__main__":
    main()
