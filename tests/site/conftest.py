"""The site, built once, and served to the browser."""

import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.browser import browser, resize  # noqa: F401

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


@pytest.fixture(scope="session")
def address(site):
    """Where the site is served."""
    handler = functools.partial(_Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
