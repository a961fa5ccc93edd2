"""What a run says on standard output: to a person, to a script, or nothing."""

import json
import os
import sys
from typing import Any, TextIO

_CLEAR_LINE = "\r\x1b[2K"
_CODES = {"bold": "1", "green": "32"}


class Console:
    """Writes in one of four modes.

    "bar": text, and under it one line that is drawn again and again; "plain": text only; "json": an
    object a line and no text, for scripts; "none": nothing.

    Args:
        mode: One of `choices.PROGRESS_MODES`; None for "bar" on a terminal and "plain" elsewhere.
        stream: Where to; standard output by default.
    """

    def __init__(self, mode: str | None = None, stream: TextIO | None = None):
        self._stream = sys.stdout if stream is None else stream
        terminal = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self.mode = mode or ("bar" if terminal else "plain")
        self._coloured = terminal and not os.environ.get("NO_COLOR")
        self._drawn = False

    def say(self, text: str) -> None:
        """Print text for a person, in the place of the line that was drawn."""
        if self.mode in ("bar", "plain"):
            self._write(f"{text}\n")

    def draw(self, line: str) -> None:
        """Draw a line that the next output replaces; "bar" only."""
        if self.mode == "bar":
            self._write(line)
            self._drawn = True

    def event(self, kind: str, **values: Any) -> None:
        """Print a JSON object with "event" and the values; "json" only."""
        if self.mode == "json":
            self._write(json.dumps({"event": kind, **values}) + "\n")

    def styled(self, text: str, style: str) -> str:
        """Text in "bold" or "green"; as it is where the output is no terminal, or with NO_COLOR."""
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self._coloured else text

    def _write(self, text: str) -> None:
        if self._drawn:
            text = _CLEAR_LINE + text
            self._drawn = False
        self._stream.write(text)
        self._stream.flush()
