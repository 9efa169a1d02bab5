"""One Chromium for all these tests, and a site of pretended clusters for each module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.chromium import DESKTOP, Browser
from devstack.debian import how_to_install, missing
from tests.browser.scenes import everything
from tests.browser.site import Site

SHOTS = Path(__file__).resolve().parents[2] / "artifacts" / "screenshots"
"""Where the tests keep their screenshots."""


def require_chromium() -> None:
    """Skip without Chromium, except where CI is set: there it is an error."""
    if absent := missing("chromium", "chromedriver"):
        message = f"{' and '.join(absent)} not found: {how_to_install(*absent)}"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)


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
