"""A real Chromium, headless, driven by Selenium: for the tests of the dashboard's page, and its pictures.

It has a profile of its own and fetches nothing. Chromium and its driver come from Debian's packages (`debian.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions, ChromeService, Keys
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from devstack.debian import ensure

T = TypeVar("T")

DESKTOP = (1360, 900)
"""Width and height in CSS pixels."""
PHONE = (375, 812)
_PHONES_BELOW = 600


class Browser:
    """One window. Waiting is for conditions, with a deadline in seconds. `profile` is a folder that is its own.

    Raises `DevstackError` if there is no Chromium and none can be installed.
    """

    def __init__(self, profile: Path) -> None:
        chromium, chromedriver = ensure("chromium", "chromedriver")
        options = ChromeOptions()
        options.binary_location = str(chromium)
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
        ):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = Chrome(options=options, service=ChromeService(executable_path=str(chromedriver)))
        self.size(DESKTOP)

    def close(self) -> None:
        """End Chromium."""
        self.driver.quit()

    def size(self, size: tuple[int, int], scale: float = 1) -> None:
        """Make the view so many CSS pixels wide and high; narrow ones count as a phone."""
        width, height = size
        metrics = {
            "width": width,
            "height": height,
            "deviceScaleFactor": scale,
            "mobile": width < _PHONES_BELOW,
        }
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def dark(self, on: bool) -> None:
        """Have the system's colours dark or light."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, url: str) -> None:
        """Load a page again, even if only what is behind '#' differs."""
        self.driver.get("about:blank")
        self.driver.get(url)

    def all(self, css: str) -> list[WebElement]:
        """Find every element that fits."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css: str, text: str | None = None, timeout: float = 10) -> WebElement:
        """Wait for the first visible element that fits and, if `text` is given, has it. Raises TimeoutError."""

        def there() -> WebElement | None:
            found = self.all(css) if text is None else self._candidates(css, text)
            fits = (element for element in found if element.is_displayed())
            return next((e for e in fits if text is None or text in self.text_of(e)), None)

        return self.eventually(there, timeout, f"{css} with {text!r}; the page says: {self.text()[:1500]}")

    def _candidates(self, css: str, text: str) -> list[WebElement]:
        """Find the elements that may have `text`, in one question: to ask each for its text takes seconds."""
        return list(
            self.driver.execute_script(
                """const plain = (words) => words.replace(/\\s+/g, '').toLowerCase(), wanted = plain(arguments[1]);
                return [...document.querySelectorAll(arguments[0])]
                  .filter(e => [e.innerText ?? '', e.textContent].some(said => plain(said).includes(wanted)));""",
                css,
                text,
            )
        )

    def text_of(self, element: WebElement) -> str:
        """Return an element's text as it is shown."""
        return str(element.text)

    def text(self) -> str:
        """Return all that the page says."""
        return str(self.driver.execute_script("return document.body.innerText"))

    def says(self, text: str, timeout: float = 10) -> None:
        """Wait until the page says `text`."""
        self.eventually(
            lambda: text in self.text(), timeout, f"the page says {text!r}, not: {self.text()[:1500]}"
        )

    def press(self, *keys: str, shift: bool = False) -> None:
        """Press keys, one after the other, on what has the focus."""
        for key in keys:
            chain = ActionChains(self.driver, duration=0)
            if shift:
                chain.key_down(Keys.SHIFT)
            chain.send_keys(key)
            if shift:
                chain.key_up(Keys.SHIFT)
            chain.perform()

    def click(self, css: str, text: str | None = None) -> None:
        """Click the element, once it is there; tried again when it was redrawn in between."""

        def done() -> bool:
            try:
                self.one(css, text).click()
            except (StaleElementReferenceException, WebDriverException):
                return False
            return True

        self.eventually(done, 10, f"a click on {css} {text!r}")

    def focused(self) -> dict[str, Any]:
        """Return tag, text, `aria-label`, id and class of what has the focus, and whether an outline shows it."""
        return dict(
            self.driver.execute_script(
                """const one = document.activeElement, style = getComputedStyle(one);
                return {tag: one.tagName.toLowerCase(), text: (one.innerText || one.value || '').trim(),
                  name: one.getAttribute('aria-label') || '', id: one.id, class: String(one.className),
                  outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0}"""
            )
        )

    def nodes(self) -> int:
        """Count the elements of the page."""
        return int(self.driver.execute_script("return document.getElementsByTagName('*').length"))

    def js(self, script: str, *arguments: object) -> Any:
        """Run a script that may `await` and returns something."""
        wrapped = (
            f"const done = arguments[arguments.length - 1]; (async (...args) => {{ {script} }})(...arguments)"
            ".then(done, (why) => done('failed: ' + why));"
        )
        return self.driver.execute_async_script(wrapped, *arguments)

    def complaints(self) -> list[str]:
        """Return the errors and warnings that the browser has logged since last asked, CSP violations included."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]  # selenium
            if entry["level"] in {"SEVERE", "WARNING"}
        ]

    def overflow(self) -> list[str]:
        """Find elements that make the page wider than the window."""
        return list(
            self.driver.execute_script(
                """const wide = document.documentElement.clientWidth;
                if (document.documentElement.scrollWidth <= wide) return [];
                return [...document.querySelectorAll('body *')]
                  .filter(e => e.getBoundingClientRect().right > wide + 1 && !e.closest('.scroll, .tabs'))
                  .map(e => `${e.tagName}.${e.className} ${e.textContent.slice(0, 40)}`);"""
            )
        )

    def shot(self, path: Path) -> Path:
        """Keep a screenshot at `path` (.png)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.driver.get_screenshot_as_png())
        return path

    def eventually(self, condition: Callable[[], T | None], timeout: float = 10, what: str = "") -> T:
        """Return the condition's first true value; fails naming `what`."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                if found := condition():
                    return found
            except StaleElementReferenceException:
                pass
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:.0f} s in vain for: {what}")
            time.sleep(0.05)
