"""Serves the page of the runs below a folder on this machine alone, and what is new of them."""

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nccl_tf.experiment.run.record import FILE_NAME
from nccl_tf.regular_files import open_regular
from nccl_tf.reports.page.data import page_data
from nccl_tf.reports.page.render import parity_tables, write_page
from nccl_tf.reports.records import Record, files_below, find_runs, is_record_file

_ADDRESS = "127.0.0.1"
_STEPS = "steps.csv"
_TAIL = 4096


class Follower:
    """The runs below a folder, read again when a file of them has changed.

    Args:
        folder: Of the runs.
        is_wanted: Which of the records to show.
        seconds: Between two looks, at least; reading that takes long is done less often.
    """

    def __init__(self, folder: Path, is_wanted: Callable[[Record], bool], seconds: float = 5.0):
        self._folder = folder
        self._is_wanted = is_wanted
        self._seconds = seconds
        self._lock = threading.Lock()
        self._seen: Any = None
        self._data: dict[str, Any] = {}
        self._records: list[Record] = []

    def page(self) -> str:
        """The page as it is now."""
        with self._lock:
            self._look()
            return write_page(self._data, parity_tables(self._records), live=True)

    def data(self) -> bytes:
        """The data of the page as they are now, JSON."""
        with self._lock:
            self._look()
            return json.dumps(self._data, separators=(",", ":"), allow_nan=False).encode()

    def _look(self) -> None:
        paths = files_below(self._folder, lambda name: is_record_file(name) or name == _STEPS)
        seen = [(path, _state(path)) for path in paths]
        if seen == self._seen:
            return
        self._seen, begin = seen, time.monotonic()
        runs = [run for run in find_runs(self._folder)[0] if self._is_wanted(run.record)]
        data, _ = page_data(runs)
        finished = {path.parent for path in paths if path.name == FILE_NAME}
        unfinished = [
            [path.parent.relative_to(self._folder).as_posix(), _last_step(path)]
            for path in paths
            if path.name == _STEPS and path.parent not in finished
        ]
        data["live"] = {
            "unfinished": unfinished,
            "time": time.strftime("%H:%M:%S"),
            "seconds": max(self._seconds, 10 * (time.monotonic() - begin)),
        }
        self._data, self._records = data, [run.record for run in runs]


def make_server(follower: Follower, port: int = 0) -> ThreadingHTTPServer:
    """A server of the page at `/` and of its data at `/data.json`, on 127.0.0.1 alone.

    Args:
        follower: What it shows.
        port: 0 for one that is free.
    """

    class Handler(_Handler):
        shown = follower

    return ThreadingHTTPServer((_ADDRESS, port), Handler)


class _Handler(BaseHTTPRequestHandler):
    shown: Follower

    def do_GET(self) -> None:
        port = self.server.server_port  # type: ignore[attr-defined]
        # A page of somebody else, whose name leads here, may not read it.
        if self.headers.get("Host") not in (f"{_ADDRESS}:{port}", f"localhost:{port}"):
            self._answer(403, b"ask 127.0.0.1 itself", "text/plain")
        elif self.path == "/":
            self._answer(200, self.shown.page().encode(), "text/html; charset=utf-8")
        elif self.path == "/data.json":
            content = self.shown.data()
            tag = f'"{hashlib.sha256(content).hexdigest()}"'
            unchanged = self.headers.get("If-None-Match") == tag
            status = 304 if unchanged else 200
            self._answer(status, b"" if unchanged else content, "application/json", tag)
        else:
            self._answer(404, b"there is / and /data.json", "text/plain")

    def _answer(self, status: int, content: bytes, kind: str, tag: str = "") -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            **({"ETag": tag} if tag else {}),
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file does; zeros for one that has gone."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def _last_step(path: Path) -> int:
    """The step of the last whole line of a steps.csv; 0 where there is none."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read(_TAIL).splitlines()
        return int(lines[-1].split(b",")[0])
    except (OSError, ValueError, IndexError):
        return 0
