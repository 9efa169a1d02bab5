"""Range with zones is Kafka's (KIP-881), on random clusters in which the leader is a partition's only replica."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from devstack.jars import jars, java
from muster.core.assignors import PlanningContext, load_assignor, run_assignor
from muster.core.model import Consumer
from tests.support.only_long import LONG

pytestmark = pytest.mark.stack  # needs Kafka's jars and a JVM

PROGRAM = Path(__file__).with_name("RackAwareRange.java")
CASES = 3000 if LONG else 1000

Leaders = dict[str, list[str]]
"""Topic to the racks of its partitions in order; "-" where it is not known."""
Subscribers = dict[str, tuple[str, list[str]]]
"""Consumer to its zone ("-" for none) and its topics."""


def random_case(random_: random.Random) -> tuple[Leaders, Subscribers]:
    """Half of them with topics of equal size, of which half have the same leaders: these stay co-partitioned."""
    topics = [f"t{i}" for i in range(random_.randint(1, 4))]
    equal = random_.random() < 0.5
    sizes = (
        dict.fromkeys(topics, random_.choice([6, 9])) if equal else {t: random_.randint(0, 9) for t in topics}
    )
    racks = random_.choice([["r1", "r2", "r3"], ["r1", "r2", "-"], ["r1"], ["r1", "nobody's"]])
    same = [random_.choice(racks) for _ in range(9)] if random_.random() < 0.5 else None
    leaders = {t: [same[p] if same else random_.choice(racks) for p in range(sizes[t])] for t in topics}
    zones = random_.choice([["r1", "r2", "r3"], ["r1", "r2", "-"], ["r1", "elsewhere"], ["r2"]])
    mixed = random_.random() < 0.5
    names = [f"c{i}" for i in range(random_.randint(1, 6))]
    return leaders, {
        c: (random_.choice(zones), [t for t in topics if not mixed or random_.random() < 0.6]) for c in names
    }


def asked(leaders: Leaders, subscribers: Subscribers) -> str:
    topics = "|".join(f"{topic}:{','.join(racks)}" for topic, racks in leaders.items())
    consumers = "|".join(f"{c}:{zone}:{','.join(wanted)}" for c, (zone, wanted) in subscribers.items())
    return f"{topics};{consumers}"


def ours(leaders: Leaders, subscribers: Subscribers) -> str:
    topics = {topic: frozenset(range(len(racks))) for topic, racks in leaders.items()}
    consumers = {
        c: Consumer(c, zone=None if zone == "-" else zone, topics=frozenset(wanted))
        for c, (zone, wanted) in subscribers.items()
    }
    known = {t: {p: rack for p, rack in enumerate(racks) if rack != "-"} for t, racks in leaders.items()}
    assignment = run_assignor(load_assignor("range"), topics, consumers, {}, PlanningContext(racks=known))
    return " ".join(sorted(f"{t}:{p}:{c}" for t, owners in assignment.items() for p, c in owners.items()))


def test_range_by_zone_is_kafkas(tmp_path: Path) -> None:
    random_ = random.Random(881)
    cases = [random_case(random_) for _ in range(CASES)]
    (tmp_path / "cases").write_text("\n".join(asked(*case) for case in cases), encoding="utf-8")
    subprocess.run(
        [
            java(),
            "-cp",
            f"{jars('kafka')}/*",
            str(PROGRAM),
            str(tmp_path / "cases"),
            str(tmp_path / "answers"),
        ],
        check=True,
        timeout=120,
    )
    kafkas = (tmp_path / "answers").read_text(encoding="utf-8").splitlines()
    assert len(kafkas) == CASES
    for case, answer in zip(cases, kafkas, strict=True):
        assert ours(*case) == answer, asked(*case)
    gained = sum(
        ours(leaders, subscribers) != ours({t: ["-"] * len(r) for t, r in leaders.items()}, subscribers)
        for leaders, subscribers in cases
    )
    assert gained > CASES / 5, "racks hardly matter in these cases"
