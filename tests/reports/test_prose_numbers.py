"""Numbers typed into pages are those of records, by `docs/numbers.toml`, or said to have none."""

import pytest

from tests.reports.claims import ROOT, AtMost, Page, claims, disagreements
from tests.reports.formulas import Formulas

TABLES = claims()
MADE = {f"docs/{name}.md" for name in (
    "comparison", "methods", "results", "step_ablations", "step_measures", "step_sizes",
)}  # fmt: skip
"""Pages that commands make, and `test_results.py` checks."""
FOUND = {path.relative_to(ROOT).as_posix() for folder in ("docs", "docs/results")
         for path in (ROOT / folder).glob("*.md")}  # fmt: skip
PAGES = ["README.md", "results/README.md", *sorted(FOUND - MADE)]


def page(name, **changes):
    return Page((ROOT / name).read_text(), TABLES.get(name, {}) | changes)


@pytest.fixture(scope="module")
def functions():
    return Formulas(TABLES["runs"]).functions()


@pytest.mark.parametrize("name", PAGES)
def test_claims_hold(name, functions):
    this = page(name)
    wrong = {words: found for words, formula in this.claims.items()
             if (found := disagreements(this.numbers(words), formula, functions))}  # fmt: skip
    assert wrong == {}


@pytest.mark.parametrize("name", PAGES)
def test_every_number_is_claimed(name):
    assert page(name).unclaimed() == []


@pytest.mark.parametrize("kind", ["settings", "without_record"])
@pytest.mark.parametrize("name", PAGES)
def test_no_exception_is_idle(name, kind):
    words = TABLES.get(name, {}).get(kind, [])
    for left_out in words:
        others = [one for one in words if one != left_out]
        assert page(name, **{kind: others}).unclaimed() != [], left_out


@pytest.mark.parametrize("name", PAGES)
def test_what_has_no_record_says_so(name):
    this = page(name)
    for words in this.without_record:
        assert any(words in text and "record" in text for text in this.paragraphs), words


def test_the_file_has_no_other_page():
    assert set(TABLES) - {"runs"} <= set(PAGES) and MADE <= FOUND


TEXT = """Ours: 83.7 ± 0.6, or 2 and 3 points; T9, 20 tasks, rate 0.1 and 4.5, `0.2` $0.3$
[a](0.4.md).

    python run.py --rate=0.5

<!-- made:begin -->0.6<!-- made:end --> 1.5 below 7 %. Up
to 1.5 above.
"""


def test_numbers_that_nothing_accounts_for_are_found():
    found = [context.split()[-2:] for context in Page(TEXT, {}).unclaimed()]
    assert len(found) == 8
    table = {"claims": {"83.7 ± 0.6, or 2 and 3 points": "...", "1.5 below 7 %": "..."},
             "settings": ["and 4.5"], "without_record": ["Up to 1.5"]}  # fmt: skip
    this = Page(TEXT, table)
    assert this.unclaimed() == []
    assert this.numbers("83.7 ± 0.6, or 2 and 3 points") == ["83.7", "0.6", "2", "3"]
    assert this.numbers("T9, 20 tasks, rate 0.1 and 4.5") == ["20"]
    for words, times in (("1.5", 2), ("9.9", 0)):
        with pytest.raises(AssertionError, match=f"received {times} times"):
            this.numbers(words)


def test_what_agrees_with_a_formula():
    values = {"ours": 83.74, "far": AtMost(1.71)}
    assert disagreements(["83.7"], "ours", values) == []
    assert disagreements(["83.8"], "ours", values) == [("83.8", 83.74)]
    assert disagreements(["84", "1.8", "2"], "ours, far, far", values) == []
    assert len(disagreements(["1.7", "1.9"], "far, far", values)) == 2
    assert disagreements(["10,000", "0.5"], "10_000, [1 / 2]", {}) == []
    assert disagreements(["1.0"], "1, 2", {}) == [(["1.0"], [1, 2])]
    assert disagreements(["7"], "7, 2 > 1", {}) == []
    assert disagreements(["7"], "7, [2 > 1, 1 > 2]", {}) == [False]
