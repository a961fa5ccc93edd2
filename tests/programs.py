"""Programs of the system that tests run, and the packages of Debian that hold them."""

import os
import shutil

import pytest

PACKAGES = {
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
    "pdflatex": "texlive-latex-recommended",
}


def needs(*names):
    """Fails a test in CI where a program is missing; at a desk it is skipped.

    Returns:
        The paths of the programs.
    """
    paths = [shutil.which(name) for name in names]
    missing = [PACKAGES[name] for name, path in zip(names, paths, strict=True) if path is None]
    if missing:
        stop = pytest.fail if os.environ.get("CI") else pytest.skip
        stop(f"is missing: apt-get install {' '.join(missing)}")
    return paths
