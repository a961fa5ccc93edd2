"""The numbers that a page has typed, and what `docs/numbers.toml` says that they are.

The file has a table for each page. Its `claims` have words of the page, as they are typed, once,
and a formula of `formulas` that gives the numbers of these words in their order, or says that what
they state is true; `settings` are words whose numbers are no results; `without_record` are words
whose numbers no record has, which the paragraph that they stand in says.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)
_CODE = re.compile(r"^```.*?^```|^(?: {4}\S[^\n]*\n)+", re.DOTALL | re.MULTILINE)
_NO_PROSE = re.compile(r"`[^`]*`|\]\([^)]*\)|\$[^$]*\$")
_NUMBER = r"(?<![\w.,/-])-?\d+(?:,\d{3})*(?:\.\d+)?(?!\w|\.\d)"
_MORE = rf"(?:(?:,| and|,? to| or) {_NUMBER})*"
_SETTING = re.compile(
    rf"\b(?:(?:rate|beta_max|dropout|momentum|decay)(?: of)? {_NUMBER}|rates {_NUMBER}{_MORE})"
)
_UNIT = re.compile(rf"{_MORE} ?(?:points?\b|%)")


class AtMost(float):
    """A value of which a page has the last digit rounded up."""


def claims():
    """`docs/numbers.toml`: the tables of the pages, and of the names of runs."""
    return tomllib.loads((ROOT / "docs/numbers.toml").read_text())


class Page:
    """The typed text of a page, on one line, without what is made by commands."""

    def __init__(self, text, table):
        text = _CODE.sub("", MADE.sub("", text))
        self.paragraphs = [" ".join(part.split()) for part in re.split(r"\n\n|\n(?=[*|] )", text)]
        self.text = " ".join(self.paragraphs)
        self.claims = table.get("claims", {})
        self.without_record = table.get("without_record", [])
        self.settings = table.get("settings", [])
        self._no_result = {
            position
            for pattern in (_NO_PROSE, _SETTING, *map(_literal, self.settings))
            for found in pattern.finditer(self.text)
            for position in range(*found.span())
        }

    def numbers(self, words):
        """The numbers, as typed, of words that stand once on the page."""
        times = self.text.count(words)
        assert times == 1, f"expected once on the page, received {times} times: {words}"
        begin = self.text.index(words)
        return [self.text[slice(*place)] for place in self._places(begin, begin + len(words))]

    def unclaimed(self):
        """Decimals, and numbers of points or percent, that nothing accounts for; with context."""
        accounted = {
            position
            for words in (*self.claims, *self.without_record)
            for found in re.finditer(re.escape(words), self.text)
            for position in range(*found.span())
        }
        return [
            self.text[max(begin - 40, 0) : end + 20]
            for begin, end in self._places(0, len(self.text))
            if begin not in accounted
            and ("." in self.text[begin:end] or _UNIT.match(self.text, end))
        ]

    def _places(self, begin, end):
        return [found.span() for found in re.compile(_NUMBER).finditer(self.text, begin, end)
                if found.start() not in self._no_result]  # fmt: skip


def disagreements(typed, formula, functions):
    """(typed, value) where they differ, or all of both where there are more of one, or False."""
    values = _flat(eval(f"({formula})", {"__builtins__": {}, **functions}))
    if any(value is False for value in values):
        return [False]
    values = [value for value in values if value is not True]
    if len(typed) != len(values):
        return [(typed, values)]
    return [pair for pair in zip(typed, values, strict=True) if not _agree(*pair)]


def _agree(typed, value):
    digits = len(typed.partition(".")[2])
    plain = typed.replace(",", "")
    if isinstance(value, AtMost):
        return 0 <= float(plain) - value < 10**-digits
    return f"{value:.{digits}f}" == plain


def _flat(value):
    if isinstance(value, tuple | list):
        return [number for part in value for number in _flat(part)]
    return [value]


def _literal(words):
    return re.compile(rf"(?<![\w.]){re.escape(words)}(?!\w|\.\d)")
