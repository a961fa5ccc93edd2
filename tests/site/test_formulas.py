"""Every formula of the sources stands in the built pages, and no other form of mathematics does."""

import importlib
import inspect
import re
from html.parser import HTMLParser

import pytest

import nccl_tf
from tests.site.conftest import ROOT

pytestmark = [pytest.mark.pages, pytest.mark.xdist_group("site")]

FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(?!\s)([^$]+?)(?<!\s)\$", re.DOTALL)
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
PLAIN = re.compile(r"alpha_H|beta_H|\b[fg]_[IJ]\b|\bLambda\b|\bGamma\b|\\[<*]|<=|\$")


class Page(HTMLParser):
    """The formulas of a page, and its running text without formulas and code."""

    SILENT = ("code", "pre", "script", "style", "title", "svg")
    VOID = ("img", "br", "hr", "input", "meta", "link", "path", "circle")

    def __init__(self, html):
        super().__init__()
        self.formulas, self.text, self._open = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        classes = dict(attrs).get("class") or ""
        kind = "formula" if "arithmatex" in classes.split() else tag
        if tag not in self.VOID:
            self._open.append(kind)
        if kind == "formula":
            self.formulas.append("")

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            self._open.pop()

    def handle_data(self, data):
        if "formula" in self._open:
            self.formulas[-1] += data
        elif not set(self._open) & set(self.SILENT):
            self.text.append(data)


def flat(formula):
    return " ".join(formula.split())


def written(text):
    """The formulas of a Markdown text or of a docstring."""
    return [flat(a or b) for a, b in FORMULA.findall(CODE.sub("", text))]


@pytest.fixture(scope="module")
def pages(site):
    names = [path.relative_to(site).as_posix() for path in site.rglob("*.html")]
    return {name: Page((site / name).read_text()) for name in names if name != "404.html"}


def shown(page):
    return [flat(formula.strip()[2:-2]) for formula in page.formulas]


def test_pages_show_the_formulas_of_their_sources(site, pages):
    sources = ROOT / "build/site_sources"
    count = 0
    for path in sources.rglob("*.md"):
        name = path.relative_to(sources).with_suffix(".html").as_posix()
        if not name.startswith("api/"):
            assert shown(pages[name]) == written(path.read_text()), name
            count += len(pages[name].formulas)
    assert count > 250


def docstrings():
    """All that the pages of the API show: public classes with their methods, and functions."""
    modules = [importlib.import_module(f"nccl_tf.{name}") for name in ("step_sizes", "metrics")]
    modules += [
        importlib.import_module(f"nccl_tf.theory.{name}") for name in ("bounds", "forgetting")
    ]
    members = [
        (m, value) for m in modules for _, value in inspect.getmembers(m, inspect.isfunction)
    ]
    owners = [value for m, value in members if value.__module__ == m.__name__]
    classes = [getattr(nccl_tf, name) for name in nccl_tf._HOMES]
    for owner in [*owners, *filter(inspect.isclass, classes)]:
        yield owner.__qualname__, inspect.getdoc(owner) or ""
        for name, value in vars(owner).items():
            if not name.startswith("_") and inspect.isfunction(value) and value.__doc__:
                yield f"{owner.__qualname__}.{name}", inspect.getdoc(value)


def test_the_api_shows_the_formulas_of_docstrings(pages):
    found = {f for name, page in pages.items() if name.startswith("api/") for f in shown(page)}
    expected = [(name, f) for name, text in docstrings() for f in written(text)]
    assert len(expected) > 200
    assert [(name, f) for name, f in expected if f not in found] == []


def test_no_mathematics_in_plain_letters(pages):
    found = {
        (name, text.strip())
        for name, page in pages.items()
        for text in page.text
        if PLAIN.search(text)
    }
    assert found == set()
