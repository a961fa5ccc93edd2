"""Provenance of a record: commit, versions, device, and statistics of the run."""

import functools
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from nccl_tf.errors import one_line
from nccl_tf.machine import count_cores
from nccl_tf.records.checkpoints import state_sha256

_PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "numpy": ("numpy",),
    "tensorflow-datasets": ("tensorflow-datasets",),
    "scikit-learn": ("scikit-learn",),
}
"""Name in the record -> names of the distributions that may provide it."""

_DECIDE_BITS = (
    "TF_XLA_FLAGS", "XLA_FLAGS", "TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC",
    "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE",
)  # fmt: skip
"""Variables by which TensorFlow and its libraries choose other kernels, or compile them."""
_CACHE = "--tf_xla_persistent_cache_"
_LETTERS = 500  # of a text in a record


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages a result depends on; None where not installed."""
    installed: dict[str, str | None] = {"python": platform.python_version()}
    for name, distributions in _PACKAGES.items():
        installed[name] = next(filter(None, map(_version, distributions)), None)
    return installed


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def package_source() -> dict[str, Any]:
    """The entries of a record that name the code of this process.

    `commit` is HEAD of the git checkout whose top holds the package, `package_modified` whether
    files of the package differ from it, new ones included. Both are None where there is no such
    checkout, or git does not answer. Ask when a run begins: a checkout may move on while a process
    runs the modules that it has loaded, so that the first answer stays.
    """
    return source_below(Path(__file__).resolve().parents[2])


def source_below(root: Path) -> dict[str, Any]:
    """As `package_source`, of the package in the folder `root`."""
    commit = changes = None
    if (root / ".git").exists():
        commit = _git(root, "rev-parse", "--verify", "HEAD")
    if commit is not None:
        changes = _git(root, "status", "--porcelain", "--untracked-files=all", "--", "nccl_tf")
    return {"commit": commit, "package_modified": None if changes is None else bool(changes)}


def _git(root: Path, *words: str) -> str | None:
    """The output of git, or None where it fails."""
    # Without locks: several runs may begin at the same time.
    command = ["git", "-C", str(root), "--no-optional-locks", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def state_and_memory(state: Mapping[str, Any]) -> dict[str, Any]:
    """The hash of a learner's state and the peak of memory, for `make_record`.

    Args:
        state: The variables by name, at the end of a run.
    """
    import resource  # Windows has none; `learn` does not ask for it.

    return {
        "state_sha256": state_sha256(state),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT,
    }


def variables_that_decide_bits() -> dict[str, str]:
    """The variables of the environment by which TensorFlow rounds otherwise, those that are set."""
    given = {name: os.environ[name] for name in _DECIDE_BITS if name in os.environ}
    if flags := given.pop("TF_XLA_FLAGS", ""):
        # Compiled programs give the same bits, wherever they lie.
        words = [word for word in flags.split() if not word.startswith(_CACHE)]
        given |= {"TF_XLA_FLAGS": " ".join(words)} if words else {}
    return {name: one_line(value)[:_LETTERS] for name, value in given.items()}


def describe_devices() -> str:
    """The processors that TensorFlow uses, such as "2 CPU cores" or "GPU 0 (NVIDIA A100)"."""
    # Imported late: who reads a record needs no TensorFlow.
    import tensorflow as tf

    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        count = count_cores()
        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = tf.config.get_logical_device_configuration(cpu) or [None]
        cut = f" as {len(parts)} devices" if len(parts) > 1 else ""
        return f"{count} CPU core{'' if count == 1 else 's'}{cut}"
    return ", ".join(f"GPU {gpu.name.rpartition(':')[2]} ({_model(gpu)})" for gpu in gpus)


def computes_in_tensorfloat32() -> bool:
    """Whether TensorFlow computes products and convolutions of float32 in TensorFloat-32.

    It rounds their factors to 10 bits of fraction where that is switched on, as it is by default,
    and a visible GPU has it: NVIDIA's of compute capability 8.0 (Ampere) or later. Their libraries
    leave it out under NVIDIA_TF32_OVERRIDE=0.
    """
    import tensorflow as tf

    return (
        tf.config.experimental.tensor_float_32_execution_enabled()
        and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"
        and any(
            _details(gpu).get("compute_capability", (0, 0)) >= (8, 0)
            for gpu in tf.config.get_visible_devices("GPU")
        )
    )


def _model(gpu: Any) -> str:
    return str(_details(gpu).get("device_name", "unknown model"))


def _details(gpu: Any) -> dict[str, Any]:
    import tensorflow as tf

    return tf.config.experimental.get_device_details(gpu)
