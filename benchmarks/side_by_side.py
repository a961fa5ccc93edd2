"""Side-by-side timing: both sides in one process, in alternated rounds, as a ratio of medians.

What is timed is mostly the last task of a stream, beside a ring full of the tasks before it.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import nccl_tf
from nccl_tf.batch import Batch
from nccl_tf.learner.columns import extras_of
from nccl_tf.memories.kinds import get_memory
from nccl_tf.methods.registry import get_method
from nccl_tf.streams.arrays import Examples

BATCH, SLOTS = 10, 5


def rounds_of(description: str, default: int, threads: int = 1) -> int:
    """The number of rounds that the command line asks for; sets the threads, as `take_threads`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=default)
    take_threads(threads)
    return parser.parse_args().rounds


def take_threads(threads: int) -> None:
    """As a run: one operation at a time on one thread if dense, else two on two threads each."""
    tf.config.threading.set_inter_op_parallelism_threads(1 if threads == 1 else 2)
    tf.config.threading.set_intra_op_parallelism_threads(threads)


def measure(
    sides: dict[str, Callable[[], None]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    of_rounds: Callable[[list[float]], float] = statistics.median,
) -> dict[str, float]:
    """Median seconds of one call of each side, after one call of each to warm up.

    The sides alternate within a round, so that a slow spell of the machine meets all of them.
    With `time.process_time` as the clock, other processes on the same cores do not count, and with
    `min` of the rounds hardly what they take of the caches.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for name, side in sides.items():
            start = clock()
            side()
            seconds[name].append(clock() - start)
    return {name: of_rounds(values) for name, values in seconds.items()}


def report(
    title: str, milliseconds: dict[str, float], ratios: dict[str, tuple[float, float | None]]
) -> None:
    """Print the times, the ratios with their targets, and all of it as one JSON line.

    A ratio without a target (None) is for information.
    """
    print(title)
    for name, value in milliseconds.items():
        print(f"  {name:<44} {value:9.3f} ms")
    for name, (ratio, target) in ratios.items():
        print(f"  {name:<44} {ratio:9.2f}{_verdict(ratio, target)}")
    print(
        json.dumps(
            {
                "title": title,
                "milliseconds": milliseconds,
                "ratios": {n: {"ratio": r, "target": t} for n, (r, t) in ratios.items()},
            }
        )
    )


def _verdict(ratio: float, target: float | None) -> str:
    if target is None:
        return ""
    return f"     target {target:g}: {'met' if ratio <= target else 'missed'}"


def table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, the first column of names, the others of numbers."""
    print(f"{title}\n")
    for row in (heads, ["---", *["---:"] * (len(heads) - 1)], *rows):
        print(f"| {' | '.join(row)} |")
    print()


def examples(
    steps: int, shape: tuple[int, int, int], classes: Sequence[int], batch: int = BATCH
) -> Examples:
    """Random images and labels for so many batches."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (batch * steps, *shape), dtype=np.uint8)
    return Examples(images, random.choice(classes, batch * steps).astype(np.int32))


def full_ring(
    heads: Sequence[Sequence[int]], shape: tuple[int, int, int], slots: int = SLOTS
) -> nccl_tf.RingMemory:
    """A ring of which all tasks but the last have ended."""
    return filled(nccl_tf.RingMemory(slots, heads, shape), heads, slots)


def full_memory(
    method: str,
    heads: Sequence[Sequence[int]],
    shape: tuple[int, int, int],
    classes: int,
    slots: int = SLOTS,
) -> Any:
    """The memory of a method in which all tasks but the last have left as much as in a ring."""
    row = get_method(method)
    extras = extras_of(row.learner_class().columns, classes)
    memory = get_memory(row.memory).build(
        capacity=slots * sum(map(len, heads[:-1])),
        slots=slots if row.memory == "ring" else None,
        rule="exact", task_classes=heads, example_shape=shape, seed=0,
        **({"extras": extras} if extras else {}),
    )  # fmt: skip
    return filled(memory, heads, slots)


def filled(memory: Any, heads: Sequence[Sequence[int]], slots: int) -> Any:
    """A memory with so many random images of each class of all tasks but the last."""
    for task, head in enumerate(heads[:-1]):
        labels = tf.constant(np.repeat(np.array(head, np.int64), slots))
        shape = (len(labels), *memory.example_shape)
        images = np.random.default_rng(task).integers(0, 256, shape, np.uint8)
        tasks, ones = tf.fill([len(labels)], tf.constant(task, tf.int64)), tf.ones([len(labels)])
        extras = {
            name: tf.zeros([len(labels), *column.shape[1:]], column.dtype)
            for name, column in memory.columns.items()
        }
        memory.write(Batch(tf.constant(images), labels, tasks, ones, extras))
        memory.close_task(task)
    return memory


def readable(memory: nccl_tf.RingMemory) -> Examples:
    """The stored examples of a ring's ended tasks, task after task."""
    slots = memory.readable.numpy()[: int(memory.num_readable.numpy())]
    return Examples(memory.inputs.numpy()[slots], memory.labels.numpy()[slots])


def fitted(
    learner: nccl_tf.Learner,
    part: Examples,
    heads: Sequence[Sequence[int]],
    batch: int = BATCH,
) -> Callable[[], None]:
    """A call that fits the last task once as the command does, with a compiled learner."""
    last = len(heads) - 1
    task = nccl_tf.Task(last, tuple(heads[last]), len(part.labels), lambda: part, lambda: part)
    data = task.train_batches(batch)
    return lambda: learner.fit(data, task_id=last, end_task=False, verbose=0)
