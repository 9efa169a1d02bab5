"""Whatever stands in a cluster's history: each entry is read as it says, or shown as one that cannot be read.

`muster history` and the dashboard's timeline go on with the others, and so do writers that append and prune.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from muster.cli.main import main
from muster.cluster.last_rebalance import LastRebalance, last_rebalance
from muster.core.history import CommandEntry, HistoryPage, Unreadable, entry_name, entry_prefix, history_path
from muster.dashboard.timeline import timeline
from tests.faults.fuzz.cluster import CLUSTER, Cluster
from tests.faults.fuzz.error_text import explains
from tests.faults.fuzz.malformed import mangled, odd_texts
from tests.faults.fuzz.tally import count, examples
from tests.support.memory_zookeeper import Operation
from tests.support.sources import opener

ROOT = history_path(CLUSTER)
FILE = "clusters: {c: {consul_service: consumers, group_id: g, topics: [t], consumers: {count: 2, handler: a.b}}}"
NOW = 1_800_000_000.0
STEP = {
    "topic": "t",
    "before": "Stable",
    "after": "Closing",
    "epoch": 7,
    "reason": "consumer a left",
    "lasted": 1.5,
    "moved": 3,
    "moves": [
        {"why": "consumer a left", "from": "a", "to": {"b": [1, 2]}},
        {"why": "nobody is left", "from": "b", "to": None, "partitions": [3]},
    ],
}
TRANSITIONS = {
    "kind": "transitions",
    "at": "2026-11-22T07:00:00.000+00:00",
    "by": "dag run",
    "steps": [STEP, {**STEP, "topic": "u", "before": "Closing", "after": "Stable"}],
}
LEVER = {
    "kind": "lever",
    "at": "2026-11-22T07:00:00.000+00:00",
    "who": "ann",
    "what": "pin",
    "why": "has the cache",
    "via": "command line",
    "details": {"consumer": "a", "topic": "t", "partitions": "0-1"},
}
GOOD = CommandEntry(NOW, "ann", "isolate", "disk full", "dashboard", {"consumer": "a"})
entries = mangled(TRANSITIONS) | mangled(LEVER)
names = odd_texts.filter(lambda name: 0 < len(name) <= 300 and "/" not in name and "\x00" not in name)


@pytest.fixture(scope="module", autouse=True)
def clusters_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("fuzz") / "clusters.yaml"
    path.write_text(FILE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MUSTER_CLUSTERS", str(path))
        yield


def shown(cluster: Cluster, *options: str) -> str:
    """What `muster history` prints."""
    servers = opener(cluster.store, cluster.discovery, cluster.poll)
    done = CliRunner().invoke(main, ["history", "--cluster", CLUSTER, *options], obj=servers)
    assert done.exception is None, (done.output, done.exception)
    return done.output


@examples(700)
@given(st.lists(entries, min_size=1, max_size=3), st.sampled_from((None, "t")))
def test_rotten_entries_cost_themselves(rotten: list[bytes], topic: str | None) -> None:
    cluster = Cluster({}, good=())
    first = cluster.store.append_history(GOOD)
    for data in rotten:
        cluster.zookeeper.write(Operation("create numbered", entry_prefix(CLUSTER), data))
        count("history entry")
    last = cluster.store.append_history(GOOD)
    page = cluster.store.history()
    assert [record.number for record in page.records] == list(range(last, first - 1, -1))
    assert page.records[0].entry == page.records[-1].entry == GOOD
    unreadable = [record for record in page.records if isinstance(record.entry, Unreadable)]
    for record in unreadable:
        explains(record.entry.problem, f"{ROOT}/{entry_name(record.number)}")
    # The dashboard: what it answers is JSON, and nothing in it is lost but for the filter.
    told_all = timeline(lambda *_: page, limit=50, before=None, topic=topic, consumer=None)
    assert topic or sum(e.lever == "isolate" and e.reason == GOOD.why for e in told_all.entries) >= 2
    for entry in told_all.entries:
        strictly(entry.model_dump_json())
    if (latest := last_rebalance(page.records, NOW)) is not None:
        strictly(TypeAdapter(LastRebalance).dump_json(latest).decode())
    # The command line: to a person, who must not have a terminal spoilt, and as JSON.
    options = () if topic is None else ("--topic", topic)
    events = strictly(shown(cluster, "--json", *options))["events"]
    text = shown(cluster, *options)
    assert "\x1b" not in text
    assert sum(event["kind"] == "unreadable" for event in events) == len(unreadable)
    assert text.count("disk full") >= 2


def strictly(text: str) -> Any:
    """JSON as other programs read it: without NaN and infinity."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


@examples(150)
@given(st.sampled_from(sorted(LEVER.keys() - {"kind", "at", "details"})), st.text(min_size=1, max_size=20))
def test_no_entry_steers_the_terminal(field: str, text: str) -> None:
    cluster = Cluster({}, good=())
    data = {**LEVER, field: f"\x1b[31m{text}\u202e"}
    cluster.zookeeper.put(f"{ROOT}/{entry_name(0)}", json.dumps(data).encode())
    count("history entry")
    lines = shown(cluster).replace("\n", "")
    assert "\\x1b[31m" in lines
    assert "\\u202e" in lines
    assert not {"\x1b", "\u202e", "\x07", "\x9b"} & set(lines)


@examples(150)
@given(st.lists(names, min_size=1, max_size=4, unique=True), entries)
def test_nodes_that_are_no_entries_are_left_alone(children: list[str], data: bytes) -> None:
    cluster = Cluster({}, good=())
    for child in children:
        cluster.zookeeper.put(f"{ROOT}/{child}", data)
        count("history entry")
    number = cluster.store.append_history(GOOD)
    page: HistoryPage = cluster.store.history()
    assert [record.number for record in page.records] == [number]
    assert cluster.store.prune_history(keep_seconds=1e12, keep_entries=0, keep_bytes=10**9) == 1
    assert cluster.store.history().records == ()
    assert {f"{ROOT}/{child}" for child in children} <= cluster.zookeeper.data().keys(), (
        "they may be somebody's"
    )
