"""Whole runs of few steps by the clock, here, in Avalanche and in PyTorch, in one table.

python -m benchmarks.short_runs [--steps=1000,3600,20000] [--method=er_ring] [--rounds=2] [--write]

Each run is a process of its own on one thread: it starts, loads ten tasks of permuted MNIST, and
learns them with experience replay on the network 784-256-256-10. Chunks are cold, with no program
kept, and warm, with all of them. Avalanche and PyTorch need what `benchmarks.peers` needs, and are
left out where it is missing. `limit` is the arithmetic of the steps at the pace of a large product
of matrices on this core. `--write` puts the table into docs/speed.md.
"""

import argparse
import importlib.util
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.side_by_side import measure, take_threads
from benchmarks.whole_commands import command

PAGE = Path(__file__).parents[1] / "docs" / "speed.md"
TASKS, BATCH, SIDES = 10, 10, (784, 256, 256, 10)
SIZES = {1000: (1000, 1), 3600: (1200, 3), 20000: (1000, 20)}
"""Steps of a run of 10 tasks in batches of 10 -> examples of a task, epochs."""
PEERS = "avalanche", "pytorch"
HOW = "plain", "chunks, cold", "chunks, warm", "by the rule, warm", *PEERS


def sides(method: str, steps: int, kept: str) -> dict[str, Callable[[], None]]:
    """Calls that make a run of so many steps.

    Args:
        method: Such as "er_ring".
        steps: A key of `SIZES`.
        kept: Folder of the compiled programs of the warm one.
    """
    examples, epochs = SIZES[steps]
    run = (
        f"--method={method}", "--dataset=permuted_mnist", f"--max_tasks={TASKS}",
        f"--batch_size={BATCH}", f"--examples_per_task={examples}", f"--epochs={epochs}",
        "--progress=none", "--threads=1",
    )  # fmt: skip
    warm = f"--compile_cache={kept}"
    calls = [
        command(*run, "--jit_compile=false", "--compile_cache=off"),
        command(*run, "--jit_compile=true", "--compile_cache=off"),
        command(*run, "--jit_compile=true", warm),
        command(*run, warm),
    ]
    if all(map(importlib.util.find_spec, ("torch", "avalanche"))):
        calls += [_process("benchmarks.short_peers", name, str(steps)) for name in PEERS]
    return {f"{steps} {how}": call for how, call in zip(HOW, calls, strict=False)}


def _process(*words: str) -> Callable[[], None]:
    """A call of a module in a process on one thread."""
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return lambda: _output(words, one) and None


def _output(words: Sequence[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words], check=True, capture_output=True, text=True,
        env={**os.environ, **(environment or {})},
    )  # fmt: skip
    return done.stdout


def flops() -> int:
    """Floating-point operations of the products of a step: both batches forward, and backward."""
    forward = 2 * 2 * BATCH * sum(a * b for a, b in itertools.pairwise(SIDES))
    first = 2 * 2 * BATCH * SIDES[0] * SIDES[1]  # no slope by the inputs
    return 3 * forward - first


def flops_a_second(size: int = 1024) -> float:
    """What this core does in a large product of matrices of float32, the best of ten."""
    import tensorflow as tf

    take_threads(1)
    factor = tf.random.normal([size, size])
    seconds = []
    for _ in range(10):
        before = time.perf_counter()
        tf.matmul(factor, factor).numpy()
        seconds.append(time.perf_counter() - before)
    return 2 * size**3 / min(seconds)


def first_chunk(folder: str) -> float:
    """Seconds that the first chunk of a process takes beyond a later one.

    Args:
        folder: Of compiled programs, or "off".
    """
    import keras

    import nccl_tf
    from benchmarks.side_by_side import examples, fitted

    take_threads(1)
    if folder != "off":
        nccl_tf.use_compile_cache(folder)
    shape, heads = (28, 28, 1), [range(SIDES[-1])]
    network = nccl_tf.networks.mlp(shape, SIDES[-1], hidden=SIDES[1:-1])
    learner = nccl_tf.ExperienceReplay(network, nccl_tf.ReservoirMemory(100))
    learner.compile(keras.optimizers.SGD(0.1), jit_compile=True)
    fit = fitted(learner, examples(200, shape, heads[0]), heads)
    times = []
    for _ in range(3):
        before = time.perf_counter()
        fit()
        times.append(time.perf_counter() - before)
    return times[0] - min(times[1:])


def shown(seconds: dict[str, float], sizes: Sequence[int], compiling: Sequence[float]) -> str:
    """The table and the sentences below it, in Markdown.

    Args:
        seconds: Of each side.
        sizes: Steps of the runs.
        compiling: Seconds of the first chunk, cold and warm.
    """
    from nccl_tf.records.provenance import describe_devices
    from nccl_tf.reports.table import markdown_table

    pace, each = flops_a_second(), flops()
    how = [name for name in HOW if f"{sizes[0]} {name}" in seconds]
    rows = [
        [f"{n:,}", *(f"{seconds[f'{n} {name}']:.2f}" for name in how), f"{n * each / pace:.2f}"]
        for n in sizes
    ]
    heads = ("steps", *how, "limit")
    return (
        f"Seconds of a whole process of experience replay, medians, one thread of "
        f"{describe_devices()}.\n\n{markdown_table(heads, rows, heads)}\n"
        f"A step is {each / 1e6:.0f} MFLOP of products, and the core does {pace / 1e9:.0f} "
        f"GFLOP/s. Tracing and compiling the first chunk take {compiling[0]:.2f} s cold and "
        f"{compiling[1]:.2f} s warm.\n"
    )


def main() -> None:
    """Measure, print, and write where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", default=",".join(map(str, SIZES)))
    parser.add_argument("--method", default="er_ring")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the table into docs/speed.md")
    parser.add_argument("--first_chunk", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first_chunk:
        print(first_chunk(given.first_chunk))
        return
    sizes = list(map(int, given.steps.split(",")))
    with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as other:
        calls = {}
        for steps in sizes:
            calls |= sides(given.method, steps, kept)
        seconds = measure(calls, given.rounds)
        words = ("benchmarks.short_runs", f"--first_chunk={other}")
        compiling = [float(_output(words).split()[-1]) for _ in ("cold", "warm")]
    text = shown(seconds, sizes, compiling)
    print(text)
    if given.write:
        from docs.make.generated_files import print_file_status, put_between_marks

        print_file_status(PAGE, put_between_marks(PAGE, "short_runs", text, check=False), False)


if __name__ == "__main__":
    main()
