"""1,000 topics of 100 partitions for 1,000 consumers: the page stays quick, with elements for what is in sight."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver import Keys

from devstack.chromium import Browser
from tests.browser.checks import ask
from tests.browser.conftest import SHOTS
from tests.browser.scenes import huge
from tests.browser.site import Site

MOST_NODES = 4_000
"""Elements that any page may have, whatever the cluster's size."""


@pytest.fixture(scope="module")
def vast() -> Iterator[Site]:
    site = Site({"huge": huge()})
    site.start()
    yield site
    site.stop()


@pytest.mark.parametrize(
    "page",
    ["", "/topics", "/topics/topic-0500", "/consumers", "/timeline", "/what-if?without=worker-7&more=3"],
)
def test_pages_have_few_elements(browser: Browser, vast: Site, page: str) -> None:
    browser.open(f"{vast.url}#/clusters/huge{page}")
    browser.eventually(
        lambda: browser.all(".m-cell, table.data a, .happening, .reasons"), 30, "the page is there"
    )
    assert browser.nodes() < MOST_NODES
    browser.shot(
        SHOTS / f"huge-{page.split('?', maxsplit=1)[0].strip('/').replace('/', '-') or 'overview'}.png"
    )
    assert browser.overflow() == []


def test_a_long_table_is_walked_by_keys(browser: Browser, vast: Site) -> None:
    browser.open(f"{vast.url}#/clusters/huge/topics?sort=topic&order=asc")
    browser.one("table.data a", "topic-0000", 30).send_keys(Keys.PAGE_DOWN)
    first = browser.eventually(lambda: browser.focused()["text"], 10, "a row has the focus")
    assert first.startswith("topic-00")
    assert browser.nodes() < MOST_NODES
    rows = ask(browser, "rowNumbers")
    assert rows == sorted(rows), "rows stand in their order"
    assert browser.one("table.data").get_attribute("aria-rowcount") == "1001"
    for key, row in ((Keys.END, "topic-0999"), (Keys.HOME, "topic-0000")):
        browser.press(key)
        browser.eventually(lambda row=row: browser.focused()["text"] == row, 10, f"{row} has the focus")  # type: ignore[misc]
        assert browser.nodes() < MOST_NODES


def test_topics_that_need_a_look_come_first_and_names_can_be_searched(browser: Browser, vast: Site) -> None:
    browser.open(f"{vast.url}#/clusters/huge")
    assert browser.one(".m-topic-link", timeout=30).text == "topic-0500"
    browser.says("8 of 1,000 topics: those first that need a look")
    browser.open(f"{vast.url}#/clusters/huge/consumers?search=worker-99")
    browser.says("11 consumers of this kind", 30)


def test_the_largest_matrix_has_few_elements(browser: Browser, vast: Site) -> None:
    """100,000 partitions by 1,000 consumers in one matrix, which no page of ours even asks for."""
    browser.open(vast.url)
    drawn = ask(browser, "largestMatrix")
    assert drawn["last"] == "100001"
    assert drawn["nodes"] < MOST_NODES
