"""A first visit to the dashboard, in a real Chromium, on the running stack: look, isolate, restore, read the audit.

In order, as the other story of this folder: every step begins where the one before it ended.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By

from devstack.chromium import DESKTOP, PHONE, Browser
from docs.pictures.dashboard import log_in, pull, running
from tests.browser.conftest import SHOTS, require_chromium
from tests.conftest import Eventually
from tests.e2e.conftest import PARTITIONS, SHARES, TOPIC, RunningStack
from tests.support.number_producer import NumberProducer
from tests.support.only_long import only_long

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(900)]

CLUSTER = "numbers"
OTHERS = ("/topics", "/consumers", "/consumers/numbers-1", "/timeline", "/decisions")
"""Pages that are looked at for their own sake with LONG=1 only."""
REBALANCED = 90.0
"""Seconds within which a rebalance is through and shown."""


@pytest.fixture(scope="module")
def browser(world: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    require_chromium()
    browser = Browser(tmp_path_factory.mktemp("chromium"))
    log_in(browser, world.stack.airflow.url, "admin", world.stack.airflow.passwords()["admin"])
    yield browser
    browser.close()


@pytest.fixture(scope="module", autouse=True)
def records(world: RunningStack) -> Iterator[None]:
    """Records flow while a person looks."""
    producer = NumberProducer(world.stack.kafka.address, TOPIC)
    yield
    producer.stop()


def page(world: RunningStack, where: str = "") -> str:
    return f"{world.stack.airflow.url}/muster/#/clusters/{CLUSTER}{where}"


def shows(browser: Browser, world: RunningStack, expected: dict[str, int]) -> None:
    """The matrix comes to show these shares by itself, without being loaded again."""
    browser.eventually(
        lambda: running(browser) == expected, REBALANCED, f"{expected} on the page; {world.describe()}"
    )


def test_the_stack_is_at_rest(world: RunningStack, eventually: Eventually) -> None:
    for dag in (f"muster_consumers__{CLUSTER}", f"muster_coordinator__{CLUSTER}"):
        eventually(lambda dag=dag: world.api.has_dag(dag), 120, f"{dag} is parsed")
        world.api.set_paused(dag, False)
    eventually(lambda: world.shares() == SHARES, 240, "2/4")


def test_dashboard_is_in_airflows_navigation(browser: Browser, world: RunningStack) -> None:
    browser.open(f"{world.stack.airflow.url}/plugin/muster")
    frame = browser.one("iframe", timeout=60)
    browser.driver.switch_to.frame(frame)
    try:
        browser.click(".cluster-card a", CLUSTER)
        browser.one(".m-cell.is-running", timeout=30)
        browser.driver.switch_to.default_content()
        browser.eventually(
            lambda: browser.driver.current_url.endswith(f"#/clusters/{CLUSTER}"), 10, "the address follows"
        )
        browser.shot(SHOTS / "real-in-airflow.png")
        browser.driver.switch_to.frame(browser.one("iframe"))
        browser.click("a[data-airflow]", "DAG")
    finally:
        browser.driver.switch_to.default_content()
    browser.eventually(
        lambda: f"/dags/muster_coordinator__{CLUSTER}" in browser.driver.current_url, 10, "a link leads out"
    )


def test_a_cluster_at_a_glance(browser: Browser, world: RunningStack) -> None:
    browser.open(f"{world.stack.airflow.url}/muster/")
    card = browser.one(".cluster-card", timeout=30)
    browser.eventually(
        lambda: "Healthy" in card.text and "1 Stable" in card.text, 60, f"healthy, not: {card.text}"
    )
    assert "Consumers live\n2" in card.text
    assert "Last rebalance" in card.text


@pytest.mark.parametrize(
    "where",
    [
        "",
        f"/topics/{TOPIC}",
        "/what-if?without=numbers-1",
        # The later steps open these, too; that they fit is a test of tests/browser.
        *(pytest.param(where, marks=only_long) for where in OTHERS),
    ],
)
def test_page_of_each_kind_is_shown(browser: Browser, world: RunningStack, where: str) -> None:
    browser.complaints()
    for size, name in ((DESKTOP, "desktop"), (PHONE, "phone")):
        browser.size(size)
        browser.open(page(world, where))
        browser.eventually(
            lambda: "Reading" not in browser.text() and browser.all(".cluster-line .chip"), 30, "the page"
        )
        browser.one(".m-cell, table.data tbody a, .happening, .reasons, .decision-list")
        browser.shot(
            SHOTS / f"real-{where.strip('/').split('?')[0].replace('/', '-') or 'overview'}-{name}.png"
        )
        assert browser.overflow() == []
    browser.size(DESKTOP)
    assert browser.complaints() == []


def test_preview_is_shown_and_then_happens(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world, "/consumers"))
    browser.click('button[aria-label="Isolate numbers-1"]')
    browser.says("2 partitions would move: numbers-2 +2.", 30)
    browser.press("\ue00c")  # Escape
    pull(browser, "Isolate numbers-1", "its disk is failing")
    browser.open(page(world))
    shows(browser, world, {"numbers-2": PARTITIONS})
    browser.says("1 isolated")
    entry = world.discovery.overrides.isolated()["numbers-1"]
    assert (entry.by, entry.why) == ("admin", "its disk is failing")


def test_consumer_is_restored_by_a_button(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world, "/decisions"))
    browser.says("its disk is failing")
    pull(browser, "Restore numbers-1", "disk replaced")
    browser.open(page(world))
    shows(browser, world, SHARES)


def test_pin_and_unpin(browser: Browser, world: RunningStack) -> None:
    owner = world.view.topic(TOPIC)
    assert owner is not None
    assert owner.assignment is not None
    other = "numbers-1" if owner.assignment.owners[0] == "numbers-2" else "numbers-2"
    browser.open(page(world, f"/topics/{TOPIC}"))
    pull(browser, "Pin…", "close to its cache", partitions="0", consumer=other)
    label = (
        f'.m-cell.is-running.pinned[aria-label^="{TOPIC} partition 0, {other}: running, pinned to {other}"]'
    )
    browser.one(label, timeout=REBALANCED)
    pull(browser, "Unpin…", "the cache is gone")
    browser.eventually(lambda: not browser.all(".m-cell.pinned"), REBALANCED, "no pin any more")


def test_a_paused_cluster_is_paused_everywhere(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world))
    pull(browser, "Pause coordination…", "maintenance tonight")
    browser.says(f"Coordination of {CLUSTER} is paused.", 30)
    browser.open(f"{world.stack.airflow.url}/muster/")
    browser.says("Coordination is paused: maintenance tonight", 30)
    browser.open(page(world, "/timeline"))
    browser.says(f"Coordination of {CLUSTER} is paused.", 30)
    pull(browser, "Resume coordination…", "maintenance is over")
    browser.eventually(lambda: not browser.all(".banner.paused"), 30, "the banner goes")


@only_long
def test_rebalance_exclude_and_include(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world))
    pull(browser, "Rebalance now…", "to be sure")
    browser.open(page(world, "/consumers/numbers-1"))
    pull(browser, "Exclude…", "no credentials", topic=TOPIC)
    browser.open(page(world))
    shows(browser, world, {"numbers-2": PARTITIONS})
    browser.open(page(world, "/consumers/numbers-1"))
    pull(browser, "Include…", "credentials are there")
    browser.open(page(world))
    shows(browser, world, SHARES)


def test_a_preview_is_brought_about(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world, "/what-if?assignor=range"))
    browser.one("h2", "move", 30)
    pull(browser, "Change the assignor…", "range suits the joins")
    browser.open(page(world, "/decisions"))
    browser.says("range suits the joins", 30)
    pull(browser, "Take back…", "back to sticky")
    browser.says("sticky as the settings say", 30)


def test_audit_shows_actor_action_and_duration(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world, "/timeline"))
    for words in (
        "admin isolated numbers-1: its disk is failing",
        "admin restored numbers-1: disk replaced",
        "consumer numbers-1 was isolated",
        "2 partitions moved · took",
        "admin paused coordination",
        "admin resumed coordination",
    ):
        browser.says(words, 30)
    browser.one(".happening.done .phase-bar")


def test_a_viewer_sees_all_and_can_change_nothing(browser: Browser, world: RunningStack) -> None:
    browser.driver.delete_all_cookies()
    log_in(browser, world.stack.airflow.url, "viewer", world.stack.airflow.passwords()["viewer"])
    browser.open(page(world, "/consumers"))
    browser.says("View only", 30)
    browser.one("table.data a", "numbers-1")
    assert not browser.driver.find_elements(
        By.CSS_SELECTOR, "[data-action]:not([data-action=hold]):not([data-action=again])"
    )


def test_page_is_closed_without_a_login(browser: Browser, world: RunningStack) -> None:
    browser.open(page(world))
    browser.one(".cluster-line .chip", timeout=30)
    browser.driver.delete_all_cookies()
    browser.says("You are logged out of Airflow.", 30)
