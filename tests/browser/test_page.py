"""What a person sees and does on the page, in a real Chromium, over pretended clusters in every state."""

from __future__ import annotations

import re

import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from devstack.chromium import PHONE, Browser
from muster.commands.table import COMMANDS
from muster.dashboard import models
from muster.dashboard.models import ParkedEntry
from tests.browser.checks import ask
from tests.browser.conftest import SHOTS
from tests.browser.pretend import VALUE
from tests.browser.scenes import DIFFERS, NASTY, POISON, RESTORING, WARMING, said
from tests.browser.site import STATIC, Site
from tests.support.only_long import only_long

BROWSER = (
    "ChildNode Element Error Event FocusEvent HTMLElement HTMLElementTagNameMap HTMLInputElement KeyboardEvent Map "
    "MouseEvent Node NodeListOf Omit Promise Record RequestInit Response ReturnType SVGElement Set URLSearchParams"
)
"""Types that the browser, or the language, has."""
RECORD = {"topic": "delays", "partition": "5", "offset": "10035"}
PIN = {"partitions": "0-3,7", "consumer": "flights-2"}
PAGES = {
    "clusters": "#/",
    "overview": "#/clusters/flights",
    "topics": "#/clusters/flights/topics",
    "topic": "#/clusters/flights/topics/flights",
    "parked": "#/clusters/flights/topics/delays",
    "consumers": "#/clusters/flights/consumers",
    "consumer": "#/clusters/flights/consumers/flights-3",
    "timeline": "#/clusters/flights/timeline",
    "what-if": "#/clusters/flights/what-if?without=flights-2&more=1",
    "decisions": "#/clusters/flights/decisions",
    "out-of-reach": "#/clusters/orders",
    "empty": "#/clusters/audit",
    "paused": "#/clusters/billing",
}


def settle(browser: Browser) -> None:
    browser.eventually(lambda: ask(browser, "settled"), 10, "the page has what it shows")


@pytest.mark.parametrize(
    ("dark", "phone"),
    [
        pytest.param(False, False, id="desktop, light"),
        pytest.param(True, True, id="phone, dark"),
        pytest.param(True, False, id="desktop, dark", marks=only_long),
        pytest.param(False, True, id="phone, light", marks=only_long),
    ],
)
def test_every_page_fits_and_can_be_read(browser: Browser, site: Site, dark: bool, phone: bool) -> None:
    """No page is wider than the window, every text has contrast, every control has a name; nothing breaks the CSP."""
    browser.dark(dark)
    if phone:
        browser.size(PHONE, 2)
    for name, address in PAGES.items():
        browser.open(site.url + address)
        settle(browser)
        browser.shot(SHOTS / f"{name}-{'dark' if dark else 'light'}-{'phone' if phone else 'desktop'}.png")
        assert browser.overflow() == [], name
        assert [ask(browser, each) for each in ("unreadable", "nameless", "hiddenTabs")] == [[], [], []], name


def test_a_cluster_at_a_glance(browser: Browser, site: Site) -> None:
    browser.open(site.url)
    cards = browser.eventually(lambda: browser.all(".cluster-card"), 10, "cards")
    assert [card.find_element("css selector", "h2").text for card in cards] == [
        "flights",
        "audit",
        "orders",
        "billing",
    ]
    flights = cards[0].text
    for words in (
        "Needs action",
        "1 Closing, 2 Stable, 1 Unreadable",
        "1 isolated",
        "consumer flights-4 was isolated",
        "topic 'weather' cannot be read",
    ):
        assert words in flights
    assert "Coordination paused" in cards[3].text
    assert "migration of the payments database tonight" in cards[3].text
    assert "ZooKeeper (zk-1:2181,zk-2:2181) cannot be reached" in cards[2].text


def test_the_matrix_tells_each_state_by_letter_colour_and_words(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/flights")
    browser.one(".m-cell.is-running")

    def cell(partition: int, consumer: str) -> tuple[str, str, str]:
        found = browser.one(f'.m-cell[aria-label^="flights partition {partition}, {consumer}:"]')
        return str(found.get_attribute("class")), found.text[:1], str(found.get_attribute("aria-label"))

    assert cell(0, "flights-1")[1] == "R"
    assert cell(3, "flights-2")[:2] == ("m-cell is-starting", "S")
    assert cell(4, "flights-1")[:2] == ("m-cell is-closing", "C")
    assert cell(4, "flights-3")[:2] == ("m-cell to-have", "→")
    assert cell(7, "no owner")[:2] == ("m-cell is-unassigned", "U")
    assert cell(8, "flights-4")[:2] == ("m-cell is-unknown", "?")
    assert cell(0, "flights-2")[:2] == ("m-cell standby", "s")
    classes, letter, words = cell(1, "flights-2")
    assert (classes, letter) == ("m-cell is-running pinned", "R")
    assert "pinned to flights-2, lag 41, 53.0 records a second" in words
    classes, letter, words = cell(5, "flights-3")
    assert (classes, letter) == ("m-cell is-parked", "K")
    assert words.endswith("flights-3: parked at offset 10035, lag 1902, 57.0 records a second")
    assert len(set(ask(browser, "looks"))) == 6


def test_a_state_can_be_filtered_away_and_a_partition_looked_at(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/flights")
    browser.click(".state-filter.is-running")
    browser.eventually(lambda: not browser.all(".m-cell.is-running"), 5, "running ones are hidden")
    assert browser.one(".state-filter.is-running").get_attribute("aria-pressed") == "false"
    browser.click('.m-cell[aria-label^="flights partition 7, no owner"]')
    detail = browser.one(".partition-detail").text
    for words in ("flights partition 7:\nunassigned", "To have it next\nflights-2", "15,211", "Pin…"):
        assert words in detail


def test_page_says_how_far_behind_in_time_topics_are(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/flights")
    browser.says("7 min 11 s")
    browser.says("max_lag is 5 min, does not catch up, kept for 23 h 53 min at least")
    assert browser.one(".figure .off").text == "max_lag is 5 min"
    browser.click('.m-cell[aria-label^="flights partition 7, no owner"]')
    browser.shot(SHOTS / "behind-topic.png")
    assert "Behind\n7 min 11 s" in browser.one(".partition-detail").text
    browser.open(f"{site.url}#/clusters/flights/topics/delays")
    browser.says("caught up in 30 min 15 s, kept for 25 min at least")
    assert browser.one(".figure .off").text == "kept for 25 min at least"
    browser.open(f"{site.url}#/clusters/flights/topics")
    browser.says("2 h")
    browser.shot(SHOTS / "behind-topics.png")
    browser.open(f"{site.url}#/clusters/flights")
    browser.says("caught up in 30 min 15 s")
    browser.shot(SHOTS / "behind-cluster.png")
    browser.open(site.url)
    browser.says("caught up in 30 min 15 s")
    browser.shot(SHOTS / "behind-clusters.png")


def test_parked_partition_says_which_record_holds_it_up(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/delays")
    cell = browser.one(".m-cell.is-parked")
    assert cell.get_attribute("title") == f"parked at offset 10035: {POISON}"
    assert browser.one(".state-filter.is-parked").text == "1 parked"
    cell.click()
    detail = browser.one(".partition-detail").text
    browser.shot(SHOTS / "parked-chosen.png")
    for words in ("delays partition 5:\nparked at offset 10035", f"Held up by\n{POISON}"):
        assert words in detail
    assert "Decided" not in detail
    answered = ParkedEntry(offset=10_035, why=POISON, answer="dead_letter")
    site.clusters["flights"].topics["delays"].partitions[5].parked = answered
    browser.says("dead letter, not done yet")
    browser.open(f"{site.url}#/clusters/flights/consumers/flights-3")
    browser.one("th", "Parked")
    browser.says("2 parked")


def test_page_shows_state_its_restore_and_what_waits(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/airports")
    browser.says("4,808 keys")
    browser.says("16.4 MB, 1 restoring, 1 waiting for a person")
    assert browser.one(".m-cell.is-restoring").get_attribute("title") == f"restoring: {RESTORING}"
    assert browser.one(".m-cell.is-parked").get_attribute("title") == f"parked: {DIFFERS}"
    for look, words in (
        ("restoring", f"Restored\n{RESTORING}"),
        ("parked", f"Held up by\n{DIFFERS}"),
        ("running", "State\n1,200 keys, 4.1 MB\nState at offset\n52,000\nState computed by\n3 on worker-2"),
        ("running", f"Copies of its state\nflights-2 {WARMING}; flights-3 warm"),
    ):
        browser.click(f".m-cell.is-{look}")
        browser.eventually(lambda words=words: words in browser.one(".partition-detail").text, 10, words)
        browser.shot(SHOTS / f"state-{look}.png")
    browser.open(f"{site.url}#/clusters/flights/consumers/flights-1")
    browser.one("th", "Restoring")


def test_standstill_without_a_consumer_says_what_holds_it_up(browser: Browser, site: Site) -> None:
    for address in ("#/clusters/flights", "#/clusters/flights/topics/flights"):
        browser.open(site.url + address)
        found = browser.eventually(lambda: browser.all("li.waiting"), 10, "what is waited for")
        (said,) = [one.text for one in found if "has no owner" in one.text]
        assert "no progress in partition 7" in said
        assert "it has no owner: no live consumer subscribes to the topic" in said
        assert "11 min" in said


def test_unreachable_servers_are_shown_with_the_age_of_their_data(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/orders")
    browser.says("ZooKeeper (zk-1:2181,zk-2:2181) cannot be reached for 1 min")
    browser.says("no session within 10 s; is it up, and is the address right?")
    browser.says("Consul (127.0.0.1:8500) cannot be reached")
    assert re.search(r"What is shown of it was read 1 min \d+ s ago", browser.text())
    assert "Kafka" not in browser.text()
    browser.says("View only")
    assert not browser.all("[data-action=pause], [data-action=isolate]")


def test_a_server_that_stops_answering_is_noticed_and_comes_back(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/billing")
    browser.says("6")
    site.down = 500
    browser.says("it is down, as the test wishes")
    browser.says("What is shown was read")
    browser.one(".fresh-line.failed")
    site.down = 401
    browser.says("You are logged out of Airflow.")
    site.down = None
    browser.one(".fresh-line.live")
    assert "What is shown was read" not in browser.text()


def test_a_paused_cluster_is_said_to_be_paused_on_every_page(browser: Browser, site: Site) -> None:
    for page in (
        "",
        "/topics",
        "/topics/invoices",
        "/consumers",
        "/consumers/billing-1",
        "/timeline",
        "/what-if",
        "/decisions",
    ):
        browser.open(f"{site.url}#/clusters/billing{page}")
        browser.says("Coordination of billing is paused.")
        assert browser.one(".banner.paused .detail").text.startswith(
            "migration of the payments database tonight ben, 1 h 30 min ago"
        )
        browser.one(".cluster-line .chip.paused")


def test_a_rebalance_that_was_asked_for_shows_until_it_is_carried_out(browser: Browser, site: Site) -> None:
    site.clusters["flights"].rebalance_asked = said("ben", "the new rack is up", 40)
    browser.open(site.url)
    browser.says("A rebalance was asked for: the new rack is up ben, ")
    for page in ("", "/timeline", "/decisions"):
        browser.open(f"{site.url}#/clusters/flights{page}")
        browser.says("A rebalance of flights was asked for.")
        browser.one(".cluster-line .chip", "Rebalance asked for")
    browser.one(".decision-list", "not carried out yet")
    site.clusters["flights"].rebalance_asked = None
    browser.eventually(lambda: not browser.all(".banner.info"), 10, "the banner goes")


def test_an_empty_cluster_says_what_to_do_next(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/audit")
    browser.says("No consumer is live, so no record is read.")
    browser.says("muster_consumers__audit")
    browser.says("The cluster has no topic yet.")
    browser.says("muster_coordinator__audit unpaused? It looks every 20 s.")
    for page, words in (
        ("topics", "The cluster has no topic yet."),
        ("consumers", "No consumer is live."),
        ("timeline", "Nothing has happened yet."),
    ):
        browser.open(f"{site.url}#/clusters/audit/{page}")
        browser.says(words)


def test_words_of_users_are_shown_as_they_are(browser: Browser, site: Site) -> None:
    for page in ("timeline", "decisions", "consumers/flights-4"):
        browser.open(f"{site.url}#/clusters/flights/{page}")
        browser.says(NASTY)
        assert not browser.all("main img, #banners img")
    assert "owned" not in browser.driver.title


def test_isolate_and_restore(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/consumers")
    browser.click('button[aria-label="Isolate flights-2"]')
    dialog = browser.one("dialog[open]")
    browser.says("9 partitions would move")
    assert "closes its partitions, commits their offsets and idles" in dialog.text
    assert browser.focused()["tag"] == "textarea"
    browser.click("dialog button", "Isolate flights-2")
    browser.says("Give a reason: it is kept in the audit.")
    assert site.pulled == []
    browser.press("refuse me")
    browser.click("dialog button", "Isolate flights-2")
    browser.says("the command is refused, as the test wishes")
    reason = browser.one("dialog textarea")
    reason.clear()
    reason.send_keys(f"slow disk {NASTY}")
    browser.shot(SHOTS / "dialog-isolate.png")
    browser.click("dialog button", "Isolate flights-2")
    browser.eventually(lambda: not browser.all("dialog"), 5, "the dialog closes")
    assert site.pulled == [("flights", "isolate", {"consumer": "flights-2", "reason": f"slow disk {NASTY}"})]
    browser.one(".toast", "isolate of flights: slow disk")
    browser.click('button[aria-label="Restore flights-2"]')
    browser.press("disk replaced")
    browser.press(Keys.TAB, Keys.TAB, Keys.ENTER)
    browser.eventually(lambda: len(site.pulled) == 2, 5, "restored by keys alone")
    assert site.pulled[1][1] == "restore"
    browser.click(".tabs a", "Timeline")
    browser.says("anna restored flights-2: disk replaced")


@pytest.mark.parametrize(
    ("page", "button", "fields", "command", "sent"),
    [
        ("", "Pause coordination…", {}, "pause", {}),
        ("", "Rebalance now…", {}, "rebalance", {}),
        ("/topics/flights", "Pin…", PIN, "pin", {"topic": "flights", **PIN}),
        ("/topics/flights", "Unpin…", {}, "unpin", {"topic": "flights", "partitions": "1-2"}),
        ("/consumers/flights-1", "Exclude…", {"topic": "airports"}, "exclude",
         {"consumer": "flights-1", "topic": "airports"}),
        ("/topics", "Subscribe…", {"topic": "crews"}, "subscribe", {"topic": "crews", "pattern": False}),
        ("/topics", "Import offsets…", {"group": "before"}, "import-offsets",
         {"group": "before", "zookeeper_group": "", "zookeeper": "", "checkpoint": ""}),
        ("/topics/airports", "Unsubscribe…", {}, "unsubscribe", {"topic": "airports", "pattern": False}),
        ("/topics/flights", "Pause consumption…", {"partitions": "0-3"}, "pause-consumption",
         {"topic": "flights", "partitions": "0-3"}),
        ("/topics/flights", "Resume consumption…", {}, "resume-consumption", {"topic": "flights", "partitions": ""}),
        ("/topics/flights", "Seek…", {"to": "-10m", "state": "skip"}, "seek",
         {"topic": "flights", "partitions": "", "to": "-10m", "rebuild": False, "state": "skip"}),
        ("/topics/flights", "Cancel seek…", {"partitions": "2"}, "cancel-seek",
         {"topic": "flights", "partitions": "2"}),
        ("/topics/delays", "Retry the record…", {}, "retry-record", RECORD),
        ("/topics/delays", "Skip the record…", {}, "skip-record", RECORD),
        ("/topics/delays", "Dead-letter the record…", {}, "dead-letter-record", RECORD),
        ("/topics/flights", "Answer from now on…", {"error": "ValueError", "answer": "skip", "limit": "5/h"},
         "standing-answer",
         {"topic": "flights", "error": "ValueError", "answer": "skip", "text": "", "limit": "5/h"}),
        ("/topics/flights", "End the standing answer…", {"error": "ValueError"}, "end-standing-answer",
         {"topic": "flights", "error": "ValueError", "text": ""}),
        ("/topics", "Replay dead letters…", {}, "replay-deadletters", {"topic": "", "partitions": "", "error": ""}),
        ("/topics/delays", "Replay dead letters…", {"error": "KeyError"}, "replay-deadletters",
         {"topic": "delays", "partitions": "", "error": "KeyError"}),
        ("/decisions", "Change the assignor…", {"assignor": "range", "assignor-options": '{"x": 1}'}, "assignor",
         {"assignor": {"name": "range", "options": {"x": 1}}}),
        ("/consumers/flights-1", "Include…", {}, "include", {"consumer": "flights-1", "topic": "delays"}),
    ],
)  # fmt: skip
def test_every_command_asks_for_a_reason_and_sends_what_was_said(
    browser: Browser,
    site: Site,
    page: str,
    button: str,
    fields: dict[str, str],
    command: str,
    sent: dict[str, str],
) -> None:
    browser.open(f"{site.url}#/clusters/flights{page}")
    browser.click("button", button)
    browser.one("dialog[open]")
    for name, value in fields.items():
        field = browser.one(f'dialog [name="{name}"]')
        field.clear()
        field.send_keys(value)
    browser.one("dialog textarea").send_keys("because")
    browser.click("dialog button[type=submit]")
    browser.eventually(lambda: site.pulled, 5, "the command is given")
    assert site.pulled == [("flights", command, {**sent, "reason": "because"})]


def test_preview_of_a_skipped_record_shows_it_and_carries_nothing_out(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/delays")
    browser.click("button", "Skip the record…")
    browser.one("dialog .foreseen li", "is skipped")
    lines = [one.text for one in browser.all("dialog .foreseen li")]
    assert lines == site.clusters["flights"].foresee(COMMANDS["skip-record"], RECORD)
    assert VALUE in lines[1]
    assert not browser.all("dialog .foreseen .error")
    for name in ("preview", "preview-phone"):
        browser.shot(SHOTS / f"{name}.png")
        assert browser.overflow() == []
        assert ask(browser, "unreadable") == []
        assert ask(browser, "widerThanDialog") == []
        browser.size(PHONE, 2)
    assert site.foreseen == [("flights", "skip-record", {**RECORD, "reason": "preview"})]
    assert browser.one("dialog button[type=submit]").text == "Skip the record"
    browser.click("dialog button", "Cancel")
    browser.eventually(lambda: not browser.all("dialog"), 5, "the dialog closes")
    assert site.pulled == []


def test_preview_of_a_record_that_is_gone_is_an_error_and_the_dialog_stays(
    browser: Browser, site: Site
) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/delays")
    browser.one("button", "Skip the record…")
    site.clusters["flights"].topics["delays"].partitions[5].parked = None
    browser.click("button", "Skip the record…")
    error = browser.one("dialog .foreseen .error")
    assert error.text == (
        "What it would do is not known: "
        "consumer flights-3 does not fail with a record of partition 5 of topic 'delays' now"
    )
    assert not browser.all("dialog .foreseen li")
    browser.shot(SHOTS / "preview-error.png")
    assert ask(browser, "unreadable") == []
    assert browser.one("dialog[open] button[type=submit]").is_enabled()
    assert site.pulled == []


def test_preview_of_a_seek_follows_the_fields(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/delays")
    browser.click("button", "Seek…")
    browser.one("dialog .foreseen p", "What it would do is shown here when")
    assert site.foreseen == []
    browser.one('dialog [name="to"]').send_keys("-100")
    browser.one('dialog [name="partitions"]').send_keys("2", Keys.TAB)
    browser.one("dialog .foreseen li", "topic delays, partition 2: to -100")
    field = browser.one('dialog [name="to"]')
    field.clear()
    field.send_keys("earliest", Keys.TAB)
    browser.one("dialog .foreseen li", "topic delays, partition 2: to earliest")
    assert len(browser.all("dialog .foreseen li")) == 1
    assert {lever for _, lever, _ in site.foreseen} == {"seek"}
    assert site.pulled == []


def test_a_command_that_makes_no_sense_says_why(browser: Browser, site: Site) -> None:
    site.clusters["flights"].unavailable = {"isolate": "Consul is out of reach; see its banner"}
    browser.open(f"{site.url}#/clusters/flights/consumers/flights-1")
    button = browser.one("button", "Isolate…")
    assert button.get_attribute("aria-disabled") == "true"
    button.click()
    browser.one(".toast.warning", "Consul is out of reach; see its banner")
    assert not browser.all("dialog")


def test_preview_shows_the_spread_before_and_after(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/what-if?without=flights-2")
    browser.one("h2", "would move")
    assert [one.text for one in browser.all(".figure .value")] == ["7 to 9", "12"]


def test_preview_can_be_applied(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/what-if")
    browser.says("Suppose something, and see what would move.")
    browser.one("#what-if-assignor").send_keys("range")
    browser.one("#what-if-more").clear()
    browser.one("#what-if-more").send_keys("1", Keys.ENTER)
    browser.one("h2", "partitions would move")
    assert "assignor=range" in browser.driver.current_url
    browser.says("planned with range")
    browser.click("button", "Change the assignor…")
    browser.one("dialog textarea").send_keys("range suits the joins")
    browser.click("dialog button[type=submit]")
    browser.eventually(lambda: site.pulled, 5, "applied")
    _, command, body = site.pulled[0]
    assert command == "apply"
    assert body == {
        "what_if": {"without": [], "more": 1, "assignor": {"name": "range"}},
        "plan": "plan-1",
        "way": "assignor",
        "reason": "range suits the joins",
    }
    models.ApplyBody(**body)


def test_preview_takes_options_and_numbers_of_partitions(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/what-if")
    browser.one("#what-if-options").send_keys('tolerance=0.2, measure=lag, order=["a","b"]')
    browser.one("#what-if-partitions").send_keys("flights=24, weather=8", Keys.ENTER)
    browser.one("h2", "would move")
    assert site.previewed[-1] == {
        "without": [],
        "more": 0,
        "partitions": {"flights": 24, "weather": 8},
        "assignor": {"options": {"tolerance": 0.2, "measure": "lag", "order": ["a", "b"]}},
    }
    browser.driver.refresh()  # what is supposed is in the address
    browser.one("h2", "would move")
    assert browser.one("#what-if-partitions").get_attribute("value") == "flights=24, weather=8"
    browser.one("#what-if-partitions").send_keys("x", Keys.ENTER)
    browser.one(".banner.critical", 'topic weather: "8x" is no number of partitions')


def test_the_timeline_puts_steps_together(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/timeline")
    items = browser.eventually(lambda: browser.all(".happening"), 10, "what happened")
    said = [item.text.replace("\n", " ") for item in items]
    assert "under way" in said[0]
    assert "anna isolated flights-4: disk is failing" in said[1]
    assert "consumer flights-3 joined flights · 4 partitions moved · took 5.6 s" in said[2]
    assert "closing 2.2 s starting 3.4 s" in said[2]
    items[2].find_element(
        By.CSS_SELECTOR, "summary"
    ).click()  # days have headings, so places in the list vary
    browser.says("partitions 0-3 flights-1 → flights-3")
    browser.one('input[aria-label="Only this topic"]').send_keys("nothing", Keys.ENTER)
    browser.says("Nothing is known of that.")
    assert "topic=nothing" in browser.driver.current_url


def test_links_lead_deep_and_the_back_button_goes_back(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics?search=air")
    browser.says("1 topic of this kind")
    browser.click("a", "airports")
    browser.one("h2.item", "airports")
    assert browser.driver.title == "airports · Topics · flights · Muster"
    browser.click(".tabs a", "Consumers")
    browser.one('button[aria-label="Isolate flights-1"]')
    browser.driver.back()
    browser.one("h2.item", "airports")
    browser.driver.back()
    browser.says("1 topic of this kind")
    assert browser.one("input[type=search]").get_attribute("value") == "air"
    browser.open(f"{site.url}#/clusters/nowhere")
    browser.says("there is no cluster 'nowhere' that you may read")
    browser.open(f"{site.url}#/clusters/flights/nothing")
    browser.says('There is no page "nothing".')


def test_page_can_be_used_with_the_keyboard_alone(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/flights")
    browser.one(".m-cell.is-running")
    browser.press(Keys.TAB)
    assert browser.focused()["text"] == "Skip to the content"
    seen = []
    for _ in range(40):
        browser.press(Keys.TAB)
        now = browser.focused()
        seen.append(now["text"].split("\n")[0] or now["name"])
        assert now["outlined"], f"the focus on {now} cannot be seen"
        if "m-cell" in now["class"]:
            break
    for words in ("Muster", "Hold", "Pause coordination…", "Topics", "Pin…", "7 running"):
        assert any(words in one for one in seen), f"{words} cannot be reached by Tab: {seen}"
    assert "m-cell" in browser.focused()["class"], "one Tab stop leads into the matrix"
    browser.press(Keys.ARROW_RIGHT)
    assert browser.focused()["name"].startswith("flights partition 0, flights-1: running")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert browser.focused()["name"].startswith("flights partition 1, flights-2: running, pinned")
    browser.press(Keys.END)
    assert browser.focused()["name"].startswith("flights partition 1, flights-4")
    browser.press(Keys.PAGE_DOWN, Keys.ENTER)
    browser.says("partition 11: running")
    here = browser.focused()["name"]
    browser.eventually(lambda: site.not_modified > 3, 10, "it has been asked again meanwhile")
    assert browser.focused()["name"] == here, "the focus stays while the page updates itself"
    browser.click("button", "Pause coordination…")
    browser.press(Keys.ESCAPE)
    browser.eventually(lambda: not browser.all("dialog"), 5, "Escape closes the dialog")
    assert browser.focused()["text"] == "Pause coordination…", "the focus goes back to where it was"


def test_skip_link_and_rows_by_arrow_keys(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics")
    browser.one("table.data a", "flights")
    browser.press(Keys.TAB, Keys.ENTER)
    assert browser.focused()["id"] == "main"
    assert browser.driver.current_url.endswith("#/clusters/flights/topics"), "the address stays"
    browser.one("table.data a").send_keys(Keys.ARROW_DOWN)
    first = browser.focused()["text"]
    browser.press(Keys.END)
    assert browser.focused()["text"] not in {"", first}
    browser.press(Keys.ENTER)
    browser.one("h2.item")


def test_an_update_shows_by_itself_and_can_be_held(browser: Browser, site: Site) -> None:
    browser.open(f"{site.url}#/clusters/flights/topics/airports")
    browser.one("h2.item", "airports")
    site.clusters["flights"].topics["airports"].partitions[2].state = "S"
    browser.one(".m-cell.is-starting")
    browser.click("button", "Hold")
    browser.one(".fresh-line.held")
    site.clusters["flights"].topics["airports"].partitions[2].state = "R"
    before = site.not_modified
    browser.says("read 3 s ago")
    assert site.not_modified == before
    browser.one(".m-cell.is-starting")
    browser.click("button", "Go live")
    browser.eventually(lambda: not browser.all(".m-cell.is-starting"), 10, "the update")


def test_page_takes_the_theme_of_airflow_around_it(browser: Browser, site: Site) -> None:
    browser.open(site.url.replace("/muster/", "/framed"))
    theme = "return document.querySelector('iframe').contentDocument?.documentElement.dataset.theme"
    browser.eventually(lambda: browser.driver.execute_script(theme) == "dark", 10, "dark in Airflow's frame")
    browser.driver.execute_script("document.documentElement.className = 'light'")
    browser.eventually(lambda: browser.driver.execute_script(theme) == "light", 10, "and light as it changes")
    assert all("sandbox" in one or "favicon" in one for one in browser.complaints())


def test_types_of_answers_in_the_scripts_are_models() -> None:
    """A type that no script defines is the browser's own, or one of `muster.dashboard.models`."""
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in STATIC.rglob("*.js"))
    comments = " ".join(re.findall(r"/\*\*.*?\*/", scripts, re.DOTALL))
    types = " ".join(re.findall(r"@(?:param|returns|type|typedef|property) (\{.*?\})(?=[ \n*)])", comments))
    named = set(re.findall(r"(?<![\w\"#.])[A-Z]\w+", types))
    defined = set(re.findall(r"(?:class|@typedef \{.*\}|@template \{.*?\}|@template) (\w+)", scripts))
    models_of_answers = {name for name in named if hasattr(models, name)}
    assert {"ClusterAnswer", "ConsumerRow", "TopicAnswer", "WhatIfAnswer"} <= models_of_answers
    assert named - defined - models_of_answers - set(BROWSER.split()) == set()


def test_page_loads_nothing_from_elsewhere_and_parses_no_html() -> None:
    """No network but the page's own, no HTML from strings, no inline style or script."""
    for path in [*STATIC.rglob("*.js"), *STATIC.rglob("*.css"), STATIC / "index.html"]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), path
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|<script(?![^>]*src=)|\son\w+=", page)


def test_every_module_is_asked_for_at_once() -> None:
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    named = set(re.findall(r'<link rel="modulepreload" href="static/(.*?)"', page)) | {"js/app.js"}
    assert named == {str(path.relative_to(STATIC)) for path in STATIC.rglob("*.js")}
