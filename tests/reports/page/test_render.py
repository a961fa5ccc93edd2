"""The page: it loads nothing, runs nothing but its own scripts, and says the same every time."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import nccl_tf
from nccl_tf.commands.parity import parity_page
from nccl_tf.reports.page.render import parity_tables, report_page
from nccl_tf.reports.paper.parity import select_cells
from nccl_tf.reports.records import RecordedRun
from nccl_tf.reports.table import as_markdown
from tests.reports.paper.test_parity import record as record_of_cell

VOID = {"meta", "img", "br", "hr", "link", "input"}
PAGE = Path(nccl_tf.__file__).parent / "reports" / "page"


class Page(HTMLParser):
    """Reads a page: text, attributes, scripts; fails where tags do not match."""

    CDATA_CONTENT_ELEMENTS = ("script", "style")

    def __init__(self, text):
        super().__init__()
        self.words, self.attributes, self.scripts, self.data = [], [], [], None
        self.policy, self.tags = "", []
        self.feed(text)
        assert self.tags == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.attributes += attrs.items()
        if attrs.get("http-equiv") == "Content-Security-Policy":
            self.policy = attrs["content"]
        if tag not in VOID:
            self.tags.append((tag, attrs))

    def handle_endtag(self, tag):
        assert self.tags.pop()[0] == tag

    def handle_data(self, data):
        tag, attrs = self.tags[-1] if self.tags else ("", {})
        if tag == "script" and attrs.get("type") == "application/json":
            self.data = json.loads(data)
        elif tag == "script":
            self.scripts.append(data)
        elif tag != "style":
            self.words += data.split()


@pytest.fixture(scope="module")
def html(runs):
    return report_page(runs)[0]


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_it_holds_everything_and_needs_nothing_else(html, page):
    assert not [a for a in page.attributes if a[0] in ("src", "href", "srcset", "action")]
    assert "url(" not in html.partition("</head>")[0] and "@import" not in html
    assert sum(len(group["rows"]) for group in page.data["groups"]) == 9
    text = " ".join(page.words)
    for words in ("T9: permuted MNIST", "Accuracy against forgetting", "best of six methods"):
        assert words in text, words
    assert len(html) < 2_300_000


def test_its_tables_are_those_of_the_command_parity(records):
    """Those of later papers too."""
    runs = [record_of_cell(select_cells(table)[0], 0, 0.5) for table in ("DER", "ER-ACE")]
    tables = parity_tables([*records, *runs])
    assert {"T9", "DER", "ER-ACE"} <= {table.name for table in tables}
    printed = parity_page(select_cells(None), [*records, *runs], every=False)
    assert printed == "\n".join(f"### {t.title}\n\n{as_markdown(t)}" for t in tables)


def test_the_policy_allows_its_scripts_alone(page):
    rules = dict(rule.split(" ", 1) for rule in page.policy.split("; "))
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in page.scripts
    ]
    assert rules["script-src"].split() == hashes and len(hashes) == 7
    assert rules["default-src"] == rules["connect-src"] == rules["base-uri"] == "'none'"
    assert "unsafe-eval" not in page.policy and "unsafe-inline" not in rules["script-src"]
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_the_same_runs_give_the_same_bytes(runs, html):
    assert report_page(runs[::-1])[0] == html


HOSTILE = (
    "<script>alert(1)</script>", "</script><script>alert(1)</script>", "<!--<script>", "]]>",
    '"><img src=x onerror=alert(1)>', "\u2028\u2029", "{{ 7*7 }}", "&lt;b&gt;",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_what_records_hold_is_data(records, text):
    hostile = [
        RecordedRun({**record, "commit": text, "device": text, "versions": {"python": text}}, None)
        for record in records[:2]
    ]
    page = Page(report_page(hostile)[0])
    assert len(page.scripts) == 7
    assert page.data["columns"]["device"] == [text] * 2


def test_our_scripts_are_short_and_the_others_have_their_licences():
    for path in PAGE.glob("*.js"):
        assert len(path.read_text().splitlines()) < 300, path
    names = {path.name for path in (PAGE / "libraries").iterdir()}
    assert {"plotly.LICENSE", "tabulator.LICENSE"} < names
    for path in (PAGE / "libraries").glob("*.js"):
        text = path.read_text()
        assert not re.search(r"</script|<!--|\r", text), path  # It stands inside of the page.
