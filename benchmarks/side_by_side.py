"""Side-by-side timing: both sides in one process, in alternated rounds, as a ratio of medians."""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import tensorflow as tf


def rounds_of(description: str, default: int, threads: int = 1) -> int:
    """The number of rounds that the command line asks for; sets the threads, as `take_threads`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=default)
    take_threads(threads)
    return parser.parse_args().rounds


def take_threads(threads: int) -> None:
    """Two operations at a time, each on as many threads: as a run, 1 if dense, else 2."""
    tf.config.threading.set_inter_op_parallelism_threads(2)
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
