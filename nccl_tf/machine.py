"""Resources of this machine: cores, free memory and GPUs, queried without TensorFlow."""

import functools
import os
import subprocess
from pathlib import Path

_THREADS_VARIABLE = "TF_NUM_INTRAOP_THREADS"


def count_cores() -> int:
    """Number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def free_memory() -> int:
    """Bytes that new processes can use without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        amounts = {name: int(rest.split()[0]) for name, rest in (x.split(":") for x in lines)}
        return 1024 * amounts["MemAvailable"]
    except (OSError, KeyError, ValueError):
        pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf(pages)


def gpu_ids() -> tuple[str, ...]:
    """Names in CUDA_VISIBLE_DEVICES of the GPUs of this process; none without a driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = _count_gpus()
    if visible is None or not count:
        return tuple(str(number) for number in range(count))
    names = [name.strip() for name in visible.split(",")]
    # CUDA ignores a number that is no GPU, and all that stand behind it.
    end = next((i for i, name in enumerate(names) if name in ("", "-1")), len(names))
    return tuple(names[:end])


@functools.cache
def _count_gpus() -> int:
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def threads_of_environment() -> int:
    """The intra-op threads that TensorFlow's own environment variable sets; 0 for none."""
    threads = os.environ.get(_THREADS_VARIABLE, "")
    return int(threads) if threads.isdecimal() else 0


def total_memory() -> int:
    """Bytes of memory that the machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
