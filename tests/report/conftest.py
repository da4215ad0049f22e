"""A browser for the tests of the report."""

import os
import shutil

import pytest
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait


@pytest.fixture(scope="session")
def driver():
    """Debian's Chromium. CI must have it; elsewhere a machine without it says so."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing and os.environ.get("CI") != "true":
        pytest.skip(f"{' and '.join(missing)} not installed")
    assert not missing, f"CI must have {' and '.join(missing)}: .ci/run installs them"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.unhandled_prompt_behavior = "ignore"  # an alert is to be seen, not closed
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    with webdriver.Chrome(options=options, service=service) as found:
        yield found


@pytest.fixture
def opened(driver):
    """A function that opens a file at a width, in light or dark, and waits until all of it is there."""

    def open_at(path, width=1280, scheme="light"):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
        driver.get_log("browser")
        driver.get(path.as_uri())
        ready = "return document.documentElement.classList.contains('scripted')"
        WebDriverWait(driver, 30).until(lambda one: one.execute_script(ready))
        return driver

    yield open_at
    assert [entry for entry in driver.get_log("browser") if entry["level"] != "INFO"] == []
