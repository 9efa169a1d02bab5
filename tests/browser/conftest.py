"""One Chromium for all these tests, and a site of pretended clusters for each module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.chromium import DESKTOP, Browser
from tests.browser.scenes import everything
from tests.browser.site import Site
from tests.support.debian_programs import needed

SHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"
"""Where the tests keep their screenshots."""


def require_chromium() -> None:
    """Skip without Chromium; in CI it is installed."""
    needed("chromium", "chromedriver")


@pytest.fixture(scope="session")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    require_chromium()
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.close()


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The window at its usual size, in light colours; a test after which the browser has complained fails."""
    window.size(DESKTOP)
    window.dark(False)
    window.complaints()
    yield window
    complaints = [one for one in window.complaints() if "Failed to load resource" not in one]
    window.driver.get("about:blank")
    assert complaints == []


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site(everything())
    served.start()
    yield served
    served.stop()
