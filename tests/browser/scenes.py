"""The clusters that the page is looked at with: in every state, paused, empty, out of reach, and huge."""

from __future__ import annotations

import time

from muster.dashboard.models import (
    Behind,
    ExclusionEntry,
    Health,
    MoveEntry,
    ParkedEntry,
    PinEntry,
    Problem,
    Said,
    ShardEntry,
    SourceHealth,
    TimelineEntry,
    WaitingEntry,
)
from tests.browser.pretend import Cluster, Partition, Topic, ranges, stable

NASTY = "<img src=x onerror=document.title='owned'>"
"""A reason that must show as it is written."""
POISON = "the record failed 8 times alone: ValueError: could not convert string to float: 'n/a'"

WARMING = "warming: it lacks 609,000 offsets of the changelog, and reads 180,000 a second, 3 s left"
RESTORING = "25 % of 812,000 offsets of its changelog, 180,000 a second, 3 s left"
DIFFERS = (
    "its changelog (end 70) is at offset 52000, commit 12; the group is at offset 9, commit without state"
)


def said(who: str, why: str, ago: float) -> Said:
    """A person decided it `ago` seconds before now."""
    return Said(by=who, at=time.time() - ago, why=why)


def flights() -> Cluster:
    """Every state there is, with pins, a standby, and a consumer that is isolated."""
    consumers = [f"flights-{n}" for n in range(1, 5)]
    live = consumers[:3]
    cells = {n: Partition(live[n % 3], lag=(n * 41) % 97, rate=52.0 + n) for n in range(12)}
    cells[2].owner = "flights-2"
    cells[3] = Partition("flights-2", "S", lag=1_284, rate=60.0)
    cells[4] = Partition(None, "C", source="flights-1", target="flights-3", lag=402, rate=58.0)
    cells[5] = Partition(
        "flights-3", "K", lag=1_902, rate=57.0, parked=ParkedEntry(offset=10_035, why=POISON)
    )
    cells[7] = Partition(None, "U", target="flights-2", lag=15_211, age=431.0, rate=61.0)
    cells[8] = Partition("flights-4", "?", lag=None, rate=None)
    cells[0].standby = "flights-2"
    moving = Topic("flights", cells, "Closing", reason="consumer flights-4 was isolated", epoch=17)
    moving.behind, moving.max_lag = Behind(age=431.0, never=True, kept=86_000.0), 300.0
    broken = Topic(
        "weather",
        {},
        "Unreadable",
        error="topic 'weather': its state node holds no JSON; put it right or delete it",
    )
    delays = stable("delays", live, 9, busy=4)
    delays.partitions[5].state = "K"
    delays.partitions[5].parked = ParkedEntry(offset=10_035, why=POISON)
    delays.behind = Behind(age=7_230.0, catch_up=1_815.0, kept=1_500.0, near=True)
    delays.stuck = "topic delays is held up by records that its handler fails with"
    airports = stable("airports", live, 6)
    for number, cell in airports.partitions.items():
        cell.shard = ShardEntry(keys=1_200 + number, bytes=4_100_000, offset=52_000)
    airports.partitions[0].shard = ShardEntry(
        keys=1_200, bytes=4_100_000, offset=52_000, executor="3 on worker-2"
    )
    airports.partitions[0].copies = {"flights-2": WARMING, "flights-3": "warm"}
    airports.partitions[3].state = "T"
    airports.partitions[3].shard = ShardEntry(restoring=RESTORING)
    airports.partitions[4].state = "K"
    airports.partitions[4].shard = ShardEntry(differs=DIFFERS)
    now = time.time()
    return Cluster(
        name="flights",
        topics={
            "flights": moving,
            "airports": airports,
            "delays": delays,
            "weather": broken,
        },
        consumers=consumers,
        states={"flights-4": "isolated"},
        said={"flights-4": said("anna", f"disk is failing {NASTY}", 42)},
        errors={"flights-3": "handler: ValueError: could not convert string to float: 'n/a'"},
        pins=[
            PinEntry(
                topic="flights",
                partitions=[(1, 2)],
                consumer="flights-2",
                said=said("anna", "close to its cache", 86_000),
            ),
            PinEntry(
                topic="delays",
                partitions=[(0, 0)],
                consumer="flights-9",
                said=said("ben", "try-out", 900_000),
                obstacle="consumer flights-9 is not live",
            ),
        ],
        exclusions=[
            ExclusionEntry(
                consumer="flights-1", topic="delays", said=said("ben", "no credentials for it", 7_200)
            )
        ],
        problems=[
            Problem(
                level="critical",
                what="topic 'weather' cannot be read: its state node holds no JSON; put it right or delete it",
                topic="weather",
            ),
            Problem(
                level="warning",
                what="consumer 'flights-3' reports an error: handler: ValueError: could not convert string to float",
                consumer="flights-3",
            ),
        ],
        waiting=[
            WaitingEntry(
                topic="flights",
                consumer="flights-1",
                phase="close",
                partitions=[(4, 4)],
                why="it reports partition 4 as closing",
                since=now - 4,
            ),
            WaitingEntry(
                topic="delays",
                consumer="flights-3",
                phase="progress",
                partitions=[(5, 5)],
                why=f"the partition is parked, {POISON}",
                offset=10_035,
                since=now - 900,
            ),
            WaitingEntry(
                topic="flights",
                consumer="",
                phase="progress",
                partitions=[(7, 7)],
                why="it has no owner: no live consumer subscribes to the topic",
                since=now - 700,
            ),
        ],
        timeline=story(now),
        health=Health.CRITICAL,
    )


def story(now: float) -> list[TimelineEntry]:
    """A first assignment, a consumer that came, an isolation under way; newest first."""

    def step(
        at: float, before: str | None, after: str, reason: str, moved: int = 0, **more: object
    ) -> TimelineEntry:
        moves = (
            [
                MoveEntry(
                    topic="flights",
                    partitions=[(0, max(0, moved - 1))],
                    source=more.pop("source", None),
                    target=str(more.pop("target", "flights-1")),
                    why=reason,
                )
            ]
            if moved
            else []
        )  # type: ignore[arg-type]
        return TimelineEntry(
            id=f"{at:020.3f}",
            at=at,
            kind="transition",
            topic="flights",
            before=before,
            after=after,
            reason=reason,
            moved=moved,
            moves=moves,
            **more,
        )  # type: ignore[arg-type]

    done = [
        step(now - 7300, None, "Starting", "first assignment", 12, epoch=1),
        step(
            now - 7297,
            "Starting",
            "Stable",
            "every partition is running",
            lasted=3.1,
            rebalance_lasted=3.1,
            epoch=1,
            by="muster_coordinator__flights scheduled__1",
        ),
        step(
            now - 3600,
            "Stable",
            "Closing",
            "consumer flights-3 joined",
            4,
            source="flights-1",
            target="flights-3",
            epoch=2,
        ),
        step(now - 3597.8, "Closing", "Starting", "closed partitions 2, 5, 8, 11", lasted=2.2, epoch=3),
        step(
            now - 3594.4,
            "Starting",
            "Stable",
            "every partition is running",
            lasted=3.4,
            rebalance_lasted=5.6,
            epoch=3,
            by="muster_coordinator__flights scheduled__2",
        ),
        TimelineEntry(
            id=f"{now - 42:020.3f}",
            at=now - 42,
            kind="lever",
            lever="isolate",
            details={"consumer": "flights-4"},
            reason=f"disk is failing {NASTY}",
            who="anna",
            by="dashboard",
        ),
        step(
            now - 4,
            "Stable",
            "Closing",
            "consumer flights-4 was isolated",
            3,
            source="flights-4",
            target="flights-2",
            epoch=17,
            who="anna",
        ),
    ]
    return done[::-1]


def billing() -> Cluster:
    """Paused by a person, and otherwise well."""
    consumers = [f"billing-{n}" for n in range(1, 3)]
    return Cluster(
        name="billing",
        topics={"invoices": stable("invoices", consumers, 6), "payments": stable("payments", consumers, 4)},
        consumers=consumers,
        paused=said("ben", "migration of the payments database tonight", 5_400),
        unavailable={"rebalance": "coordination of 'billing' is paused; resume it first"},
    )


def empty() -> Cluster:
    """No consumer has been started yet."""
    return Cluster(
        name="audit", topics={}, consumers=[], health=Health.WARNING,
        problems=[Problem(level="warning", what="no consumer is live: start muster_consumers__audit")],
    )  # fmt: skip


def out_of_reach() -> Cluster:
    """Stable, as far as is known."""
    consumers = ["orders-1", "orders-2"]
    now = time.time()
    return Cluster(
        name="orders",
        topics={"orders": stable("orders", consumers, 8)},
        consumers=consumers,
        states=dict.fromkeys(consumers, "unknown"),
        may_edit=False,
        health=Health.UNKNOWN,
        sources=[
            SourceHealth(
                source="zookeeper",
                reachable=False,
                address="zk-1:2181,zk-2:2181",
                error="no session within 10 s; is it up, and is the address right?",
                unreachable_since=now - 95,
                last_read_at=now - 97,
            ),
            SourceHealth(
                source="consul",
                reachable=False,
                address="127.0.0.1:8500",
                error="connection refused",
                unreachable_since=now - 12,
                last_read_at=now - 13,
            ),
            SourceHealth(source="kafka", reachable=True, address="kafka-1:9092"),
        ],
    )


def everything() -> dict[str, Cluster]:
    """The small clusters, by name."""
    return {cluster.name: cluster for cluster in (flights(), billing(), empty(), out_of_reach())}


def huge(topics: int = 1_000, partitions: int = 100, consumers: int = 1_000) -> Cluster:
    """1,000 topics of 100 partitions for 1,000 consumers."""
    names = [f"worker-{n}" for n in range(consumers)]
    made = {}
    for t in range(topics):
        name = f"topic-{t:04}"
        made[name] = Topic(
            name,
            {
                n: Partition(names[(t * partitions + n) % consumers], lag=(t * n) % 977, rate=float(n % 9))
                for n in range(partitions)
            },
            state="Starting" if t == 500 else "Stable",
        )
    made["topic-0500"].partitions[7].state = "S"
    return Cluster(name="huge", topics=made, consumers=names, timeline=long_story(time.time()), frozen=True)


def long_story(now: float) -> list[TimelineEntry]:
    """Two thousand steps of a thousand topics, after one consumer left."""
    entries = []
    for t in range(1_000):
        entries += [
            TimelineEntry(
                id=f"b{t:05}",
                at=now - 60 + t / 1000,
                kind="transition",
                topic=f"topic-{t:04}",
                before="Starting",
                after="Stable",
                reason="every partition is running",
                lasted=2.0,
                rebalance_lasted=2.0,
            ),
            TimelineEntry(
                id=f"a{t:05}",
                at=now - 62 + t / 1000,
                kind="transition",
                topic=f"topic-{t:04}",
                before="Stable",
                after="Starting",
                reason="consumer worker-7 left",
                moved=1,
                moves=[
                    MoveEntry(
                        topic=f"topic-{t:04}",
                        partitions=ranges([7]),
                        source="worker-7",
                        target="worker-8",
                        why="consumer worker-7 left",
                    )
                ],
            ),
        ]
    return sorted(entries, key=lambda entry: -entry.at)
