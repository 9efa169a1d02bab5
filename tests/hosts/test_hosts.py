"""Faults on three hosts, one after the other, while two clusters with two groups read the same two topics.

Each has to end with all partitions flowing, owned and Stable again. In the end each record is accounted for.
The short form has a cut, a deletion and a killed server of each kind; `make test-hosts` has them all.
"""

from __future__ import annotations

import re
import time

import pytest

from tests.hosts import faults_of_consumers, faults_of_data, faults_of_hosts, faults_of_servers
from tests.hosts.stack import LONG, NUMBERS
from tests.hosts.world import CLUSTERS, LONGEST, World
from tests.support.fault_world import Fault

pytestmark = [pytest.mark.stack, pytest.mark.timeout(1200)]
if LONG:
    pytestmark += [pytest.mark.spark, pytest.mark.airflow]

ASSIGNORS = 6
"""All that there are have to plan a rebalance."""
LEAST = 30
"""Faults that the long form injects, at least."""
FAULTS = [
    fault
    for faults in (faults_of_consumers, faults_of_data, faults_of_hosts, faults_of_servers)
    for fault in faults.FAULTS
    if LONG or not fault.long
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_clusters_flow_again_after(world: World, fault: Fault[World]) -> None:
    window = world.play(fault)
    two = [found for found in world.batches.double_owners() if window.began <= found[1].began < window.ended]
    if two:
        early, late, key = two[0]
        logs = "\n".join(world.stack.last_words(of.incarnation) for of in (early, late))
        pytest.fail(f"{fault.name}: two live and reachable consumers read {key}: {early}, {late}\n{logs}")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_kafkas_own_tool_shows_the_lag(world: World, cluster: str) -> None:
    group = world.groups[cluster]
    world.flows(time.time(), [cluster])
    table = world.stack.brokers.consumer_groups("--describe", "--group", group.id)
    rows = re.findall(rf"^{group.id}\s+{NUMBERS}\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s", table, re.MULTILINE)
    shown = {int(partition): tuple(map(int, numbers)) for partition, *numbers in rows}
    assert shown.keys() == world.partitions(NUMBERS), table
    log = group.commits[NUMBERS]
    for partition, (committed, end, lag) in shown.items():
        assert lag == end - committed
        world.eventually(
            f"the log of the group's commits has {committed} of partition {partition}",
            lambda partition=partition, committed=committed: committed <= log.committed()[partition],  # type: ignore[misc]
            LONGEST,
        )
        producer = world.producers[NUMBERS]
        assert end <= len(producer.times[partition]) + producer.again[partition]


def test_every_record_is_accounted_for(world: World) -> None:
    world.eventually("all is well after the last fault", world.settled, LONGEST)
    for topic, producer in world.producers.items():
        produced = producer.stop()
        for name in CLUSTERS:
            log = world.groups[name].commits[topic]
            world.eventually(
                f"{name} has committed all of {topic}",
                lambda log=log, produced=produced: log.committed() == produced,  # type: ignore[misc]
                LONGEST,
            )
    score = world.score()
    score.write()
    back = world.steps_back()
    assert not back, "\n".join(back)
    assert not world.missing()
    if LONG:
        assert len(score.assignors) == ASSIGNORS
        assert sum(row.injected for row in score.rows) >= LEAST
    assert score.good, score.last_line()
