"""The site as a reader meets it, in a real browser."""

import re

import pytest

from tests.browser import open_page

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("site")]

WIDE, NARROW = 1300, 390
BOX = "[...document.querySelectorAll('*')].map(e => e.shadowRoot).find(r => r)"  # of the search
LOOK = """
return {
  overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  without_text: [...document.images].filter(i => !i.alt.trim()).map(i => i.src),
  broken: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
  formulas: document.querySelectorAll(".arithmatex").length,
  rendered: document.querySelectorAll(".arithmatex .katex-html").length,
}
"""


@pytest.fixture(scope="module")
def visits(site, address, browser):
    """{page: what was seen at both widths, and what the console says}."""
    seen = {}
    for path in sorted(site.rglob("*.html")):
        name = path.relative_to(site).as_posix()
        open_page(browser, f"{address}/{name}")
        looks = {}
        for width in (WIDE, NARROW):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            looks[width] = browser.execute_script(LOOK)
        seen[name] = looks, browser.get_log("browser")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(seen) > 60
    return seen


def test_no_errors_in_the_console(visits):
    assert {name: log for name, (_, log) in visits.items() if log} == {}


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_page_scrolls_sideways(visits, width):
    over = {name: looks[width]["overflow"] for name, (looks, _) in visits.items()}
    assert {name: pixels for name, pixels in over.items() if pixels > 0} == {}


def test_the_verdict_is_seen_without_scrolling(address, browser, resize):
    """Of tables with a verdict in their last column, which fits beside the navigation."""
    resize(WIDE)
    open_page(browser, f"{address}/results/split_mnist.html")
    unfold(browser)
    ends = browser.execute_script(
        "return [...document.querySelectorAll('th:last-child')]"
        ".filter(cell => cell.textContent === 'verdict')"
        ".map(cell => [cell.getBoundingClientRect().right,"
        " cell.closest('.md-typeset__scrollwrap').getBoundingClientRect().right])"
    )
    assert len(ends) == 2
    assert all(cell <= box for cell, box in ends), ends


def test_tables_cell_by_cell_are_folded_below_their_counts(address, browser, resize):
    resize(WIDE)
    open_page(browser, f"{address}/results/permuted_mnist.html")
    seen = "return [...document.querySelectorAll('details table')].map(t => t.checkVisibility())"
    folded = browser.execute_script(seen)
    unfold(browser)
    assert len(folded) > 9 and not any(folded) and all(browser.execute_script(seen))
    summaries = browser.execute_script(
        "return [...document.querySelectorAll('summary')].map(s => s.textContent)"
    )
    assert any(re.match(r"\d+ cells: \d+ agrees, \d+ differs", text) for text in summaries)


def unfold(browser):
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")


def test_pictures_are_there_and_have_a_text(visits):
    for name, (looks, _) in visits.items():
        assert looks[WIDE]["without_text"] == looks[WIDE]["broken"] == [], name


def test_formulas_are_rendered(visits):
    assert sum(looks[WIDE]["formulas"] for looks, _ in visits.values()) > 500
    for name, (looks, _) in visits.items():
        assert looks[WIDE]["formulas"] == looks[WIDE]["rendered"], name


def test_search_finds_the_reservoir(address, browser, resize):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    resize(WIDE)
    open_page(browser, f"{address}/index.html")
    wait = WebDriverWait(browser, 20)
    wait.until(lambda b: b.find_element(By.CLASS_NAME, "md-search__button")).click()
    wait.until(lambda b: b.execute_script(f"return {BOX}?.querySelector('input')")).send_keys(
        "reservoir"
    )
    links = wait.until(
        lambda b: b.execute_script(f"return [...{BOX}.querySelectorAll('ol a')].map(a => a.href)")
    )
    assert any("ReservoirMemory" in link for link in links)


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_it_is_as_light_as_the_reader_likes(address, browser, scheme, is_dark):
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    open_page(browser, f"{address}/index.html")
    back, front = browser.execute_script(
        "const style = getComputedStyle(document.body);"
        "return [style.backgroundColor, style.color].map(c => Number(c.match(/\\d+/)[0]))"
    )
    assert (back < front) == is_dark
