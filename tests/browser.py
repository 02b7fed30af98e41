"""A headless Chromium for tests of pages, driven by selenium."""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
_SECONDS = 60
_AT_REST = """
const isEndless = a => a.effect.getComputedTiming().endTime === Infinity;
const isAnswered = !document.querySelector(".pending");  // what gradio shows faintly until the next answer
return isAnswered && document.getAnimations().every(a => a.playState !== "running" || isEndless(a));
"""


class Browser:
    """A page as a reader uses it. Elements are named by CSS selectors."""

    def __init__(self, driver):
        self.driver = driver

    @property
    def title(self) -> str:
        return self.driver.title

    def open(self, address: str) -> None:
        self.errors()  # forget those of an earlier page
        self.driver.get(address)

    def resize(self, width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def use_theme(self, name: str) -> None:
        """What the reader prefers: light or dark."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait_for(self, script: str, seconds: float = _SECONDS) -> None:
        """Waits until a script returns a true value; fails with the text of the page."""
        end = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < end, f"{script}\n{self.run('return document.body.innerText')}\n{self.errors()}"
            time.sleep(0.03)

    def all(self, selector: str) -> list:
        return self.driver.find_elements("css selector", selector)

    def first(self, selector: str):
        self.wait_for(f"return document.querySelector({selector!r}) !== null")
        return self.all(selector)[0]

    def value(self, selector: str) -> str:
        return self.first(selector).get_property("value")

    def choose(self, selector: str, value: str) -> None:
        """Chooses an entry of a list."""
        from selenium.webdriver.support.ui import Select

        Select(self.first(selector)).select_by_value(value)

    def violations(self, axe: str) -> list[tuple[str, list[str]]]:
        """What axe-core finds in the page: rule and elements. Colours count when they have stopped changing.

        Args:
            axe: source of axe-core.
        """
        self.wait_for(_AT_REST)
        self.run(axe)
        found = self.driver.execute_async_script("const done = arguments[0]; axe.run().then(r => done(r.violations))")
        return [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]

    def errors(self) -> list[str]:
        """Errors of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def axe_source() -> str:
    """The source of axe-core (MPL 2.0, not part of this repository): of AXE_CORE, or of npm's global packages."""
    path = Path(os.environ.get("AXE_CORE", ""))
    if not path.is_file() and shutil.which("npm"):
        root = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False).stdout.strip()
        path = Path(root) / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not installed: npm install -g axe-core, or AXE_CORE=…/axe.min.js")
    return path.read_text(encoding="utf-8")


def start_browser() -> Browser:
    """Skips the test where selenium or the browser is not installed."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("Chromium and its driver are not installed (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.set_script_timeout(100)  # axe takes long on a busy machine; selenium waits two minutes for an answer
    return Browser(browser)
