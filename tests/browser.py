"""A browser that looks at pages: fixtures, to be imported by a conftest."""

import pytest

from tests.programs import needs


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
    program, driver = needs("chromium", "chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "hide-scrollbars"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield started
    started.quit()


def open_page(browser, url):
    """Opens a page and waits for the whole of it: on a busy machine `get` ends before that."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get(url)
    loaded = "return document.readyState === 'complete' && location.href === arguments[0]"
    WebDriverWait(browser, 60, 0.05).until(lambda b: b.execute_script(loaded, url))


@pytest.fixture
def resize(browser):
    """Sets the width of the page in pixels, of a telephone below 600."""

    def set_width(width):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    yield set_width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
