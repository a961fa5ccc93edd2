"""Where a record comes from: versions of the packages and the commit of the source."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "numpy": ("numpy",),
    "tensorflow-datasets": ("tensorflow-datasets",),
    "scikit-learn": ("scikit-learn",),
}
"""Name in the record -> names of the distributions that may provide it."""


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages a result depends on; None where not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name, distributions in _PACKAGES.items():
        found[name] = next(filter(None, map(_version, distributions)), None)
    return found


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """HEAD of the source tree, or None where the source is not the top of a git checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
