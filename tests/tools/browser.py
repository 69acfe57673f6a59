"""Debian's chromium, for tests of pages in a real browser."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    selenium = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--window-size=1280,1600",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    yield window
    window.quit()
