"""The page as a reader meets it, in a real browser."""

import json

import pytest

from nccl_tf.reports.page.render import report_page
from nccl_tf.reports.records import RecordedRun
from tests.browser import open_page
from tests.experiment import sample

pytestmark = [pytest.mark.pages, pytest.mark.xdist_group("report")]

READY = (
    "return document.querySelectorAll('#figure .main-svg').length > 0"
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


def wait_for(browser, script):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60, 0.05).until(lambda b: b.execute_script(script))


def test_it_is_drawn_without_a_network_or_an_error(visit, runs):
    browser = visit(runs)
    assert "9 runs" in browser.find_element("tag name", "h1").text
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map(e => e.name)"
    )
    assert [name for name in loaded if not name.startswith(("blob:", "data:"))] == []
    assert browser.get_log("browser") == []
    drawn = "return document.querySelectorAll('#figure .{}').length"
    assert browser.execute_script(drawn.format("scatterlayer .trace")) >= 6
    assert browser.execute_script(drawn.format("heatmaplayer .hm")) == 1
    assert browser.execute_script(drawn.format("slider-group")) == 1


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
        settings = {**record["settings"], "schedule": text, "precision": text, text: text}
        hostile = {**record, "settings": settings, "settings_hash": f"{text[:6]}{number}" * 9,
                   "device": text, "commit": text}  # fmt: skip
        runs.append({**hostile, "dataset": text})
        runs.append({**hostile, "dataset": "one", "settings_hash": f"{hostile['settings_hash']}x"})
    browser = visit([RecordedRun(record, None) for record in runs])
    # Whatever a reader may open: each stream, each filter, and the labels of points.
    browser.execute_script(
        "document.querySelectorAll('.updatemenu-header').forEach(e =>"
        " e.dispatchEvent(new MouseEvent('click', {bubbles: true})));"
        "document.querySelectorAll('.dtcc-button').forEach(e => e.click());"
        "const gd = document.getElementById('figure');"
        "gd.layout.updatemenus[0].buttons.forEach(b => Plotly.update(gd, ...b.args));"
        "Plotly.restyle(gd, {visible: true});"
        "Plotly.Fx.hover(gd, gd.data.map((t, i) => ({curveNumber: i, pointNumber: 0}))"
        ".filter(p => gd.data[p.curveNumber].yaxis === 'y2'), 'x2y2')"
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
