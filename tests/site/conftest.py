"""The site, built once."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"


@pytest.fixture(scope="session")
def build():
    """The command that builds the site, done; a warning fails."""
    argv = [sys.executable, "-m", "docs.site.build"]
    done = subprocess.run(argv, cwd=ROOT, timeout=500, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def site(build):
    """The folder of the built site."""
    return SITE
