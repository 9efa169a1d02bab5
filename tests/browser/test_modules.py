"""The page's pure modules, by themselves, in the browser that they are for."""

from __future__ import annotations

from typing import Any

import pytest

from devstack.chromium import Browser
from tests.browser.scenes import long_story
from tests.browser.site import Site

UNKNOWN = "\u2013"


@pytest.fixture
def use(browser: Browser, site: Site) -> Any:
    browser.open(site.url)

    def use(module: str, expression: str, *arguments: object) -> Any:
        answer = browser.js(
            f"const m = await import('./static/js/{module}.js'); return {expression};", *arguments
        )
        assert not str(answer).startswith("failed: "), answer
        return answer

    return use


def test_times_and_numbers_are_said_in_two_units_at_most(use: Any) -> None:
    said = use("format", "args[0].map(m.duration)", [0.0421, 3.44, 42.9, 200, 3600, 5_400, 90_061, None])
    assert said == ["42 ms", "3.4 s", "42 s", "3 min 20 s", "1 h", "1 h 30 min", "1 d 1 h", UNKNOWN]
    assert use("format", "args[0].map(m.calm)", [0, 0.4, 7.9, 61]) == ["0 s", "0 s", "7 s", "1 min 1 s"]
    assert use("format", "args[0].map(m.short)", [0, 999, 1_234, 15_211_000, None]) == [
        "0",
        "999",
        "1.2K",
        "15.2M",
        UNKNOWN,
    ]
    assert use("format", "args[0].map(m.rate)", [0, 0.25, 52, 1_500, None]) == [
        "0/s",
        "0.3/s",
        "52/s",
        "1.5K/s",
        UNKNOWN,
    ]


@pytest.mark.parametrize("name", ["orders", "a/b", "with space", "100%", "ü?&#=", "a+b"])
def test_any_name_survives_the_address(use: Any, name: str) -> None:
    route = use(
        "router",
        "(r => ({...r, query: r.query.get('q')}))(m.parse(m.href('flights', 'topics', args[0], {q: args[0]})))",
        name,
    )
    assert route == {"cluster": "flights", "page": "topics", "item": name, "query": name}


def test_rows_in_sight_are_the_only_ones_that_count(use: Any) -> None:
    assert use("virtual_rows", "m.inSight(0, 360, 36, 5)") == {"first": 0, "last": 5}
    assert use("virtual_rows", "m.inSight(3600, 360, 36, 1000)") == {"first": 94, "last": 116}
    assert use("virtual_rows", "m.inSight(1e9, 360, 36, 1000)") == {"first": 1000, "last": 1000}


def test_patching_keeps_elements_and_what_the_user_did_with_them(use: Any) -> None:
    kept = use(
        "patch",
        """(() => {
          const one = ([tag, key, text]) => {
            const made = document.createElement(tag);
            return Object.assign(made, {textContent: text}), made.dataset.key = key, made;
          };
          const make = (parts) => {
            const all = document.createElement('div');
            all.append(...parts.map(one));
            return all;
          };
          const old = make([['p', 'a', '1'], ['details', 'b', '2'], ['p', 'c', '3']]);
          const [a, b, c] = old.children;
          b.open = true;
          m.patch(old, make([['p', 'c', '3!'], ['details', 'b', '2'], ['span', 'a', '1']]));
          const [first, second, third] = old.children;
          return [first === c, c.textContent, second === b, b.open, third === a, old.children.length];
        })()""",
    )
    assert kept == [True, "3!", True, True, False, 3]


def test_a_thousand_topics_that_lose_a_consumer_are_one_rebalance(use: Any) -> None:
    entries = [entry.model_dump(mode="json") for entry in long_story(1_000_000.0)]
    told = "m.happenings(args[0]).map(({entries, ...rest}) => ({...rest, steps: entries.length}))"
    [one] = use("timeline_groups", told, entries)
    assert one["reason"] == "consumer worker-7 left"
    assert (one["moved"], one["steps"], len(one["topics"])) == (1_000, 2_000, 1_000)
    assert one["done"]
    assert one["phases"] == [{"phase": "Starting", "lasted": 2}]
    assert one["lasted"] == 2
