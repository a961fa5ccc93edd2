"""The page as a reader meets it, in a real browser."""

import threading

import numpy as np
import pytest

from nccl_tf.experiment.run.record import write_record
from nccl_tf.reports.page.data import page_data
from nccl_tf.reports.page.render import report_page, write_page
from nccl_tf.reports.page.server import Follower, make_server
from nccl_tf.reports.records import RecordedRun
from nccl_tf.reports.run_table import as_csv, run_columns
from tests.browser import open_page
from tests.experiment import sample
from tests.reports.page.samples import write_steps

pytestmark = [pytest.mark.pages, pytest.mark.xdist_group("report")]

WIDE, NARROW = 1300, 390
READY = "return document.body.dataset.ready === 'yes'"


def wait_for(browser, script, seconds=20):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, seconds, 0.05).until(lambda b: b.execute_script(script))


@pytest.fixture(scope="module")
def visit(browser, tmp_path_factory):
    """Opens a page from a file; returns the browser when the page is ready."""
    folder = tmp_path_factory.mktemp("page")

    def open_html(html):
        path = folder / f"{hash(html)}.html"
        if not path.exists():
            path.write_text(html, encoding="utf-8")
        browser.get_log("browser")
        open_page(browser, path.as_uri())
        wait_for(browser, READY)
        return browser

    return open_html


@pytest.fixture(scope="module")
def html(records, tmp_path_factory):
    """The page of the runs, those of NCCL with steps."""
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for number, record in enumerate(records):
        if record["method"] == "nccl_ring":
            write_steps(folder / str(number), np.arange(50.0))
        runs.append(RecordedRun(record, folder / str(number)))
    return report_page(runs)[0]


@pytest.fixture
def shown(visit, html, browser):
    """The browser with that page as it opens, which is loaded where it shows another one."""
    title = "return document.getElementById('title')?.textContent ?? ''"
    if "9 runs" not in browser.execute_script(title):
        visit(html)
    pick_stream(browser, "permuted_digits (single-head), 3 tasks")
    return browser


def names(browser, place):
    return browser.execute_script(
        f"return document.getElementById('{place}').data.map(t => t.name).filter(Boolean)"
    )


def rows(browser, table):
    return browser.execute_script(f"return {table}.getRows('active').map(row => row.getData())")


def click(browser, name):
    browser.execute_script(f"document.getElementById('{name}').click()")


def pick_stream(browser, text):
    browser.execute_script(
        "const s = document.getElementById('stream');"
        f"s.value = [...s.options].find(o => o.text.includes('{text}')).value;"
        "s.dispatchEvent(new Event('change'))"
    )
    wait_for(browser, "return settingsTable.getRows().length === streamGroups().length")


def test_it_shows_the_runs_without_a_network_or_an_error(visit, html):
    browser = visit(html)
    assert "9 runs" in browser.find_element("id", "title").text
    shown = {row["method"] for row in rows(browser, "settingsTable")}
    assert shown == {"NCCL + Ring", "ER-Ring", "Multi-task"}
    assert names(browser, "curves")[0] == "Multi-task"  # The best stands first.
    assert set(names(browser, "curves")) < {"not chosen", *names(browser, "scatter"), "Multi-task"}
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_fits_and_is_as_light_as_the_reader_likes(shown, resize, width, scheme):
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    resize(width)
    page, plot = "document.documentElement", "document.querySelector('#curves .main-svg')"
    wait_for(shown, f"return {page}.scrollWidth <= {page}.clientWidth")
    wait_for(shown, f"return {width} - 80 < {plot}.clientWidth && {plot}.clientWidth < {width}")
    color = "return getComputedStyle({}).{}"
    back, front = (shown.execute_script(color.format("document.body", c)) for c in (
        "backgroundColor", "color",
    ))  # fmt: skip
    assert (_lightness(back) > _lightness(front)) == (scheme == "light")
    ink = color.format("document.querySelector('.xtick text')", "fill")
    wait_for(shown, f"{ink} === '{front}'")
    shown.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def _lightness(color):
    return int(color.partition("(")[2].partition(",")[0])


def test_filters_sort_and_comparison(shown):
    browser = shown
    browser.execute_script("settingsTable.setHeaderFilterValue('rate', '< 0.05')")
    (left,) = rows(browser, "settingsTable")
    assert (left["method"], left["rate"]) == ("ER-Ring", 0.01)
    click(browser, "choose-visible")
    assert names(browser, "curves") == ["ER-Ring, learning_rate 0.01"]
    browser.execute_script("settingsTable.clearHeaderFilter()")
    browser.execute_script("settingsTable.setHeaderFilterValue('differs', 'smoothness=1 alpha')")
    assert rows(browser, "settingsTable") == []
    browser.execute_script("settingsTable.setHeaderFilterValue('differs', 'SMOOTHNESS=1')")
    assert [row["method"] for row in rows(browser, "settingsTable")] == ["NCCL + Ring"]
    browser.execute_script(
        "settingsTable.clearHeaderFilter(); settingsTable.setSort('forgetting', 'asc')"
    )
    values = [row["forgetting"] for row in rows(browser, "settingsTable")]
    assert values[:-1] == sorted(values[:-1]) and values[-1] is None
    click(browser, "choose-none")
    assert names(browser, "curves") == [] and len(rows(browser, "runsTable")) == 5


def test_the_matrix_follows_the_slider(shown):
    browser = shown
    browser.execute_script(
        "const of = document.getElementById('matrix-of');"
        "of.value = [...of.options].find(o => o.text.startsWith('NCCL')).value;"
        "of.dispatchEvent(new Event('change'))"
    )
    show = "return document.getElementById('{}').data[0].z"
    full = [[90, None, None], [80, 90, None], [70, 80, 90]]
    assert browser.execute_script(show.format("matrix")) == full
    browser.execute_script(
        "const time = document.getElementById('matrix-time'); time.value = 2;"
        "time.dispatchEvent(new Event('input'))"
    )
    assert browser.execute_script(show.format("matrix")) == [*full[:2], [None] * 3]
    assert full[1] in browser.execute_script(show.format("matrix-all"))


def test_distributions_are_drawn_where_a_run_has_steps(shown):
    browser = shown
    assert names(browser, "steps-lambda") == ["NCCL + Ring"]
    assert not browser.find_element("id", "steps-note").is_displayed()
    pick_stream(browser, "permuted_mnist")
    assert browser.find_element("id", "steps-note").is_displayed()


def test_the_downloaded_csv_is_that_of_the_command(shown, records):
    text = shown.execute_script(
        "let made; URL.createObjectURL = blob => { made = blob; return '#' };"
        "document.getElementById('download-all').click(); return made.text()"
    )
    lines, expected = text.splitlines(), as_csv(run_columns(records)).splitlines()
    assert lines[0] == expected[0] and len(lines) == len(expected)
    assert [line.split(",")[:5] for line in sorted(lines)] == [
        line.split(",")[:5] for line in sorted(expected)
    ]


HOSTILE = (
    "<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>",
    "<a href='javascript:window.hacked=1'>x</a>", "<svg onload=window.hacked=1>", "{{1}}",
    "<b style='position:fixed'>", "&lt;script&gt;", "\u2028", "'];window.hacked=1;//",
)  # fmt: skip


def test_hostile_records_execute_nothing(visit):
    """Past the checks of records, which let none of these texts through."""
    runs = []
    for number, text in enumerate(HOSTILE):
        record = sample.record(seed=number, method="nccl_ring")
        settings = {**record["settings"], "schedule": text, "precision": text, text: text}
        runs.append({**record, "settings": settings, "settings_hash": f"{text[:9]}{number}" * 9,
                     "dataset": text, "device": text, "commit": text})  # fmt: skip
        runs.append({**runs[-1], "dataset": "one", "head": "stream"})
        runs[-1]["settings_hash"] += "x"
    browser = visit(report_page([RecordedRun(record, None) for record in runs])[0])
    pick_stream(browser, "one (stream")
    click(browser, "choose-visible")
    click(browser, "all-settings")
    browser.execute_script(
        "const p = document.getElementById('scatter');"
        "Plotly.Fx.hover(p, p.data.map((t, i) => ({curveNumber: i, pointNumber: 0})).slice(1))"
    )
    assert len(names(browser, "curves")) == len(HOSTILE)
    outside = "main img, main script, main a[href^='javascript'], main b, svg[onload]"
    found = browser.execute_script(
        f'return [window.hacked ?? null, document.querySelectorAll("{outside}").length]'
    )
    assert found == [None, 0]
    assert browser.get_log("browser") == []
    legend = "return [...document.querySelectorAll('.legendtext')].map(t => t.textContent).join()"
    for text in (browser.execute_script(legend), browser.find_element("id", "differences").text):
        assert "<img src=x" in text and "&lt;script&gt;" in text
    browser.execute_script(
        "const script = document.createElement('script'); script.text = 'window.hacked = 1';"
        "document.body.append(script); document.body.setAttribute('onclick', 'window.hacked = 2');"
        "document.body.click()"
    )
    assert browser.execute_script("return window.hacked ?? null") is None  # The policy holds.
    browser.get_log("browser")


def test_a_thousand_runs_open_within_three_seconds(visit, browser):
    methods = ("nccl_ring", "er_ring", "agem", "finetune", "er_reservoir", "ewc", "mer", "gem")
    records = [
        sample.record(sample.matrix(20, i), method=method, max_tasks=20, num_tasks=20)
        for i, method in enumerate(methods)
    ]
    runs = []
    for number in range(1000):
        record = records[number % len(records)]
        settings = {**record["settings"], "learning_rate": (number // 40 + 1) / 100}
        key = f"{number // 40 * 8 + number % 8:064x}"
        changed = {"settings": settings, "settings_hash": key, "seed": number}
        runs.append(RecordedRun({**record, **changed}, None))
    html = write_page(page_data(runs)[0], [])
    # Of its processor, because the tests share theirs with others.
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    visit(html)
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    took = {metric["name"]: metric["value"] for metric in metrics}["TaskDuration"]
    assert "1000 runs" in browser.find_element("id", "title").text
    assert 0.1 < took < 3, took


def test_a_served_page_shows_new_runs(browser, tmp_path):
    folder = tmp_path / "runs"
    write_record(sample.record(method="er_ring"), folder / "a")
    Follower(folder, lambda record: True).data()  # The first look is a long one.
    with make_server(Follower(folder, lambda record: True, seconds=0.1)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        open_page(browser, f"http://127.0.0.1:{server.server_port}/")
        wait_for(browser, READY)
        click(browser, "choose-none")
        write_record(sample.record(method="nccl_ring"), folder / "b")
        title = "return document.getElementById('title').textContent"
        wait_for(browser, f"{title}.includes('2 runs')")
        wait_for(browser, "return settingsTable.getRows().length === 2")
        assert browser.find_element("id", "count").text == "0 chosen"
        server.shutdown()
    ended = "return document.getElementById('live').textContent.includes('ended')"
    wait_for(browser, ended)
