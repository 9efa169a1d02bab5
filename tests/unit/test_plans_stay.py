"""The plans of sticky, failover, range and round-robin: an upgrade moves no partition.

Each digest is of the plans of `CASES` situations, each grown from its number. Change one only if plans are to change,
and say so in the CHANGELOG: a running cluster moves partitions after such an upgrade.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from muster.core.assignors import PlanningContext, load_assignor, run_assignor
from muster.core.model import Assignment, Consumer

CASES = 500
ZONES = ("r1", "r2", None)
DIGESTS = {
    "sticky": "712a567d1dda01c5046293f34683d7895bc12cdae2cf063646b3b362b9af62a9",
    "failover": "f437ad18cfa1f16af8a9a1463ce588d13a614c13d8b2c5ba86bbef603e9558bc",
    "range": "60ebaecb6a4b0bb31cb69aeda08585aed795e63cced442029ac7c3df36e40930",
    "round-robin": "a0285d1447bb8616bde3b72dd62cf07c348bc18adbcf1826ebb8199a2cbcf641",
}


@pytest.mark.parametrize("name", DIGESTS)
def test_plans_are_those_of_the_version_before(name: str) -> None:
    digest = hashlib.sha256()
    for number in range(CASES):
        plan = run_assignor(load_assignor(name, {}), *situation(random.Random(number)))
        digest.update(json.dumps(plan, sort_keys=True).encode())
    assert digest.hexdigest() == DIGESTS[name]


def situation(
    random_: random.Random,
) -> tuple[Mapping[str, frozenset[int]], Mapping[str, Consumer], Assignment, PlanningContext]:
    """Up to 9 consumers and 4 topics of up to 12 partitions; half with pins, exclusions, racks and standbys."""
    names = [f"c{i}" for i in range(random_.randint(1, 9))]
    topics = {f"t{i}": frozenset(range(random_.randint(0, 12))) for i in range(random_.randint(1, 4))}
    odd = random_.random() < 0.5
    consumers = {
        name: Consumer(
            name,
            priority=random_.choice((0, 0, 1, 2)),
            weight=random_.choice((1.0, 1.0, 0.5, 2.0)) if odd else 1.0,
            zone=random_.choice(ZONES) if odd else None,
            topics=frozenset(t for t in sorted(topics) if random_.random() < 0.7)
            if random_.random() < 0.2
            else None,
        )
        for name in names
    }
    before = random_.sample([*names, "left"], random_.randint(1, len(names)))
    previous = {
        topic: {p: random_.choice(before) for p in sorted(partitions) if random_.random() < 0.8}
        for topic, partitions in topics.items()
    }
    return topics, consumers, previous, context(random_, topics, names) if odd else PlanningContext()


def context(
    random_: random.Random, topics: Mapping[str, frozenset[int]], names: list[str]
) -> PlanningContext:
    def some(share: float, choices: list[Any]) -> dict[str, dict[int, Any]]:
        return {
            topic: {p: random_.choice(choices) for p in sorted(partitions) if random_.random() < share}
            for topic, partitions in topics.items()
        }

    return PlanningContext(
        pins=some(0.1, names),
        exclusions={c: frozenset({random_.choice(sorted(topics))}) for c in names if random_.random() < 0.1},
        racks=some(0.9, ["r1", "r2"]),
        standbys=some(0.1, [(c,) for c in names]),
        unsettled=frozenset(t for t in sorted(topics) if random_.random() < 0.1),
        rebalance_now=random_.random() < 0.2,
    )
