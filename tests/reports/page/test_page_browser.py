"""The page as a reader meets it, in a real browser."""

import itertools
import json

import numpy as np
import pytest

from nccl_tf.reports.page.render import report_page
from nccl_tf.reports.records import RecordedRun
from tests.browser import open_page
from tests.experiment import sample
from tests.reports.page.samples import write_steps

pytestmark = [pytest.mark.pages, pytest.mark.xdist_group("report")]

READY = (
    "return document.querySelectorAll('#curves .main-svg').length > 0"
    " && document.querySelector('table#runs.dataTable') !== null"
)


@pytest.fixture
def visit(browser, tmp_path):
    """Opens the page of some runs, and returns the browser when it is ready."""

    def open_runs(runs):
        path = tmp_path / "report.html"
        path.write_text(report_page(runs)[0], encoding="utf-8")
        browser.get_log("browser")
        open_page(browser, path.as_uri())
        wait_for(browser, READY)
        return browser

    return open_runs


def wait_for(browser, script, *arguments):
    from selenium.webdriver.support.ui import WebDriverWait

    wait = WebDriverWait(browser, 60, 0.05)
    return wait.until(lambda b: b.execute_script(script, *arguments), (script, arguments))


def test_it_is_drawn_without_a_network_or_an_error(visit, runs):
    browser = visit(runs)
    assert "9 runs" in browser.find_element("tag name", "h1").text
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    assert [name for name in loaded if not name.startswith(("blob:", "data:"))] == []
    assert browser.get_log("browser") == []
    drawn = "return document.querySelectorAll('#{}').length"
    assert browser.execute_script(drawn.format("curves .scatterlayer .trace")) >= 4
    assert browser.execute_script(drawn.format("points .scatterlayer .trace")) >= 2
    assert browser.execute_script(drawn.format("matrix .heatmaplayer .hm")) == 1
    assert browser.execute_script(drawn.format("matrix .slider-group")) == 1


CHOOSE = "const menu = document.getElementById('menu'); menu.value = arguments[0]; menu.onchange();"


def test_the_menu_chooses_what_is_shown(visit, tmp_path, runs):
    write_steps(tmp_path, [1.0, 2.0])
    values = [[0.5, np.nan], [0.5, 0.5]]
    other = sample.record(values, method="nccl_ring", num_tasks=2)
    browser = visit([*runs, RecordedRun(other, tmp_path)])
    shown = (
        "return ['curves', 'points', 'steps', 'matrix'].map("
        "name => !document.getElementById(name).closest('section').hidden)"
    )
    title = "return document.getElementById('stream').textContent"
    found = {}
    for option in range(browser.execute_script("return document.getElementById('menu').length")):
        browser.execute_script(CHOOSE, option)
        found.setdefault(browser.execute_script(title), []).append(browser.execute_script(shown))
    assert found["permuted_digits (single-head), 2 tasks"] == [[True] * 4]
    (trials,) = (states for name, states in found.items() if "trials" in name)
    assert trials == [[True, False, False, True]]


def test_tables_fit_a_window_of_1300_pixels(visit, resize, runs):
    resize(1300)
    browser = visit(runs)
    wide = (
        "return [...document.querySelectorAll('.wide, .dt-layout-cell')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1).length"
    )
    assert browser.execute_script(wide) == 0
    resize(500)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 500


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_colours_of_the_system(visit, runs, scheme):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser = visit(runs)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    # Figures are drawn again after the page has taken the colours.
    takes = (
        "const [r, g, b] = getComputedStyle(document.querySelector(arguments[0]))"
        "[arguments[1]].match(/[0-9]+/g).map(Number); return (r + g + b > 384) === arguments[2]"
    )
    places = [
        ("body", "backgroundColor", False), ("h1", "color", True),
        ("#curves .xtick text", "fill", True), ("#runs td", "color", True),
    ]  # fmt: skip
    for place, what, is_ink in places:
        wait_for(browser, takes, place, what, (scheme == "dark") == is_ink)
    lines = "return [...document.querySelectorAll('#curves .js-line')].map(e => e.style.stroke)"
    assert ("rgb(0, 0, 0)" in browser.execute_script(lines)) == (scheme == "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.nightly
def test_a_thousand_runs_open_within_five_seconds(visit, tmp_path):
    """Of 10 streams with 20 settings and 5 seeds; half of them have step sizes."""
    runs = []
    matrix = np.tril(np.full((5, 5), 0.8))
    for stream, place, seed in itertools.product(range(10), range(20), range(5)):
        method = ("nccl_ring", "er_ring", "derpp", "agem")[place % 4]
        record = sample.record(
            matrix, seed, method=method, learning_rate=0.01 * (1 + place), max_tasks=5,
            num_tasks=5 + stream, tuning_tasks=0, head="single",
        )  # fmt: skip
        folder = tmp_path / str(len(runs)) if place % 2 else None
        if folder is not None:
            write_steps(folder, np.linspace(0, 1, 200))
        runs.append(RecordedRun(record, folder))
    timing = "const t = performance.timing; return t.loadEventEnd - t.navigationStart"
    browser = visit(runs)
    first = browser.execute_script(timing)
    browser.refresh()
    assert min(first, browser.execute_script(timing)) < 5_000
    assert "1000 runs" in browser.find_element("tag name", "h1").text


HOSTILE = (
    "<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>",
    "<a href='javascript:window.hacked=1'>x</a>", "<svg onload=window.hacked=1>", "{{1}}",
    "<b style='position:fixed'>", "&lt;img src=x onerror=window.hacked=1&gt;", "\u2028",
    "'];window.hacked=1;//", "%{x}<!--<script>", "`${window.hacked=1}`", '"><i onclick=x>',
)  # fmt: skip


def test_hostile_records_run_nothing(visit):
    """Past the checks of records, which let none of these texts through."""
    runs = []
    for number, text in enumerate(HOSTILE):
        record = sample.record(seed=number, method="nccl_ring")
        settings = {**record.settings_json, "schedule": text, "precision": text, text: text}
        digest = f"{text[:6]}{number}" * 9
        hostile = sample.changed(record, settings=settings, device=text, commit=text)
        runs.append(sample.changed(hostile, dataset=text, settings_hash=digest))
        runs.append(sample.changed(hostile, dataset="one", settings_hash=f"{digest}x"))
    browser = visit([RecordedRun(record, None) for record in runs])
    # Whatever a reader may open: each view, each filter, and the labels of points.
    browser.execute_script(
        "document.querySelectorAll('.dtcc-button').forEach(e => e.click());"
        "const menu = document.getElementById('menu'), first = menu.value;"
        "for (const value of [...[...menu.options].map(o => o.value), first]) {"
        " menu.value = value; menu.onchange();"
        " const gd = document.getElementById('points');"
        " if (gd.closest('section').hidden) continue;"
        " Plotly.Fx.hover(gd, gd.data.map((t, i) => ({curveNumber: i, pointNumber: 0})), 'xy');"
        "}"
    )
    wait_for(browser, "return document.querySelectorAll('.legendtext').length >= 12")
    # A link of plotly's is of the namespace of SVG, and one of ours would have a script's address.
    found = browser.execute_script(
        "return [window.hacked ?? null, ...['img', 'svg[onload]', 'a[href^=\"javascript\"]',"
        " 'b[style]', 'i[onclick]'].map(s => [...document.querySelectorAll(s)]"
        ".filter(e => !(e.src ?? '').startsWith('data:')).length)]"
    )
    assert found == [None, 0, 0, 0, 0, 0], json.dumps(found)
    assert browser.get_log("browser") == []
    legend = "return [...document.querySelectorAll('.legendtext')].map(t => t.textContent).join()"
    tables = "return document.body.innerText"
    for text in (browser.execute_script(legend), browser.execute_script(tables)):
        assert "<img src=x" in text and "</script><script>" in text
