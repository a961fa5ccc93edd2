"""The share of a call's time in which a GPU runs a kernel, from TensorFlow's profiler."""

import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

_PICOSECONDS = 1e-12


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
