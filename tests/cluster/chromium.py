"""A real Chromium without a screen, which tests drive as a person with a keyboard would, and axe-core in its pages."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).parent / "axe" / "axe.min.js.gz"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
KEPT = Path(__file__).parents[2] / "build" / "console"
"""Where a run leaves its pictures."""
WAIT_S = 60.0
SCRIPT_S = 60.0
"""For axe-core to look at a page."""
_MISSING = "Chromium, its driver or selenium is missing: Debian's chromium and chromium-driver, and the extra test"
_BUTTON = """
const [css, label] = arguments;
return [...document.querySelectorAll(css)].find((one) =>
  (one.getAttribute("aria-label") === label || one.innerText.trim() === label) && one.checkVisibility()) ?? null;
"""
_AXE_RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: arguments[0]}).then(
  (found) => done(found.violations.map(
    (one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.html).join(" ").slice(0, 400)}`)),
  (error) => done([String(error)]));
"""


class Page:
    """``driver``: selenium's, for what has no shorter way here."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def until(self, condition: Callable[[], Any], what: str = "") -> Any:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                found = condition()
            except Exception as error:  # noqa: BLE001 - an element may go while it is looked at
                found = None
                what = what or repr(error)
            if found:
                return found
            assert time.monotonic() < deadline, f"{what}\n{self.text()}"
            time.sleep(0.02)

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def one(self, css: str) -> Any:
        """The element, when it is there."""
        return self.until(lambda: next(iter(self.all(css)), None), css)

    def text(self) -> str:
        """Everything that is shown."""
        return str(self.driver.find_element("css selector", "body").text)

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.text(), f"{text!r} is not shown")

    def go(self, page: str, heading: str = "") -> None:
        """Go to a page of the console, and wait until it is whole."""
        self.driver.execute_script("location.hash = arguments[0]", f"#/{page}")
        if heading:
            self.until(lambda: self.driver.find_element("css selector", "h1").text == heading, heading)
        self.settled()

    def settled(self) -> None:
        self.until(lambda: self.driver.find_elements("css selector", "h1") and "Loading…" not in self.text())

    def write(self, name: str, text: str, inside: str = "") -> None:
        """Write into a field by its name, or choose, or tick."""
        field = self.one(f"{inside} [name='{name}']".strip())
        if field.tag_name == "select":
            field.find_element("css selector", f"option[value='{text}']").click()
        elif field.get_attribute("type") == "checkbox":
            field.click()
        else:
            field.clear()
            field.send_keys(text)

    def press(self, label: str, inside: str = "") -> None:
        """Press the button with this accessible name, once it can be pressed."""

        def button() -> Any:
            found = self._button(label, inside)
            return found if found is not None and found.is_enabled() else None

        self.until(button, f"there is no button {label!r}").click()

    def _button(self, label: str, inside: str) -> Any:
        return self.driver.execute_script(_BUTTON, f"{inside} button".strip(), label)

    def act(self, label: str, fields: Mapping[str, str] | None = None, *, confirm: str = "", said: str = "") -> str:
        """Do what a button is for, through its dialog; the command line that the dialog shows."""
        if not self.all("dialog[open]"):  # Choosing a file may have opened it.
            self.press(label)
        self.one("dialog[open]")
        for name, text in (fields or {}).items():
            self.write(name, text, "dialog[open]")
        line = str(self.one("dialog[open] pre code").text)
        submit = self.one("dialog[open] button[type=submit]")
        if confirm:
            assert not submit.is_enabled(), f"{label} asks for no name"
            self.write("confirm", confirm, "dialog[open]")
        self.until(submit.is_enabled)
        submit.click()
        self.until(lambda: not self.all("dialog[open]"), f"{label} is not done")
        self.shows(said or label)
        return line

    def why_disabled(self, label: str) -> str:
        """The reason that a disabled button gives to those who see it and to those who hear it."""
        button = self.until(lambda: self._button(label, ""), label)
        assert button.get_attribute("aria-disabled") == "true", f"{label} is not disabled"
        return str(self.one(f"#{button.get_attribute('aria-describedby')}").get_attribute("textContent"))

    def violations(self) -> list[str]:
        """What axe-core finds."""
        if not self.driver.execute_script("return typeof axe === 'object'"):
            self.driver.execute_script(gzip.decompress(AXE.read_bytes()).decode())
        return list(self.driver.execute_async_script(_AXE_RUN, RULES))

    def keep(self, name: str) -> None:
        KEPT.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(KEPT / f"{name}.png"))

    def log_in(self, url: str, user: str = "root", password: str = "secret") -> None:
        self.driver.get(f"{url}/console/")
        self.write("user", user)
        self.write("password", password)
        self.press("Log in")


def _missing() -> None:
    """Without it the test is skipped here, and fails in CI."""
    if os.environ.get("CI"):
        pytest.fail(_MISSING)
    pytest.skip(_MISSING)


@contextmanager
def chromium(folder: Path) -> Iterator[Page]:
    """A browser; downloads come into ``folder``."""
    try:
        from selenium import webdriver
    except ImportError:
        _missing()
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        _missing()
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.add_experimental_option(
        "prefs", {"download.default_directory": str(folder), "download.prompt_for_download": False}
    )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    own = {**os.environ, "XDG_CONFIG_HOME": str(folder), "XDG_CACHE_HOME": str(folder)}  # It leaves nothing elsewhere.
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver, env=own))
    try:
        browser.set_script_timeout(SCRIPT_S)
        browser.execute_cdp_cmd("Page.enable", {})
        yield Page(browser)
    finally:
        browser.quit()
