"""Where a record comes from: versions of the packages and the commit of the source."""

import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("tensorflow", "keras", "numpy", "tensorflow-datasets", "scikit-learn")


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages a result depends on; None where not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


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
