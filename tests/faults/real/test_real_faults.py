"""Real faults on real servers, one after the other on one stack, with numbered records flowing all the while.

Each fault has to end with all partitions flowing and evenly shared again. In the end each number is accounted for: it
stands in the sink once, the group has committed it, and no commit ever went back. It has changed the state once, and
each count is once in the table that is made of the output topic.
"""

from __future__ import annotations

import pytest

from tests.faults.real import faults_of_consumers, faults_of_servers
from tests.faults.real.stack import PARTITIONS
from tests.faults.real.world import World
from tests.support.fault_world import Fault
from tests.support.only_long import ALL_FAULTS, HOURS

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.airflow, pytest.mark.timeout(900)]

TIMES = 5 if HOURS else 1
FAULTS = [
    fault
    for fault in (*faults_of_servers.FAULTS, *faults_of_consumers.FAULTS)
    if ALL_FAULTS or not fault.long
] * TIMES


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_cluster_flows_again_after(world: World, fault: Fault[World]) -> None:
    world.play(fault)


def test_state_counts_each_number_once(world: World) -> None:
    world.eventually("all is well after the last fault", world.even, world.longest)
    produced = world.producer.stop()
    assert world.eventually("all is counted", lambda: world.counted() == produced)
    stored = world.eventually("all counts are stored", lambda: world.stored_counts(produced), world.longest)
    for partition, counts in stored.items():
        assert counts == sorted({*counts}), f"partition {partition}: a count is missing, late or there twice"


def test_every_number_is_accounted_for(world: World) -> None:
    world.eventually("all is well after the last fault", world.even, world.longest)
    produced = world.producer.stop()
    world.eventually("all is committed", lambda: world.commits.committed() == produced)
    found = world.in_sink()
    lost = {p: set(range(produced[p])) - set(found[p]) for p in range(PARTITIONS)}
    score = world.score(lost)
    score.write()
    print(f"{sum(produced.values())} numbers")
    assert not any(lost.values()), f"lost: { {p: sorted(numbers)[:20] for p, numbers in lost.items()} }"
    assert {p: len(offsets) for p, offsets in found.items()} == produced, "the sink has each number once"
    assert not world.commits.steps_back
    assert score.good, score.last_line()
