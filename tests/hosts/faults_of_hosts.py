"""What can happen to a host: it is cut off, in both directions or in one, for a moment or for longer."""

from __future__ import annotations

import time

from tests.hosts.stack import ALPHA, BETA
from tests.hosts.world import CLUSTERS, LONGEST, World
from tests.support.fault_world import Fault

MOMENT = 2.0
"""Seconds that nothing has to notice."""
ENDS_WITHIN = 60.0
"""Seconds for a process that was replaced to hear of it and to end in order, once it can."""


def cut_for_a_moment(world: World) -> int:
    """Each host in turn; nothing moves."""
    before = {name: world.groups[name].view.owners("numbers") for name in CLUSTERS}
    for host in (1, 2, 3):
        with world.cut(host):
            time.sleep(MOMENT)  # the cut's length, not a wait for something
        world.flows(time.time())
    after = {name: world.groups[name].view.owners("numbers") for name in CLUSTERS}
    assert after == before, f"partitions moved: {before} -> {after}"
    return 3


def cut_until_replaced(world: World) -> int:
    """Host 3, until other hosts run its consumers under the same ids. Back again, those of old have to end."""
    old = [world.consumer(f"{name}-3") for name in CLUSTERS]
    with world.cut(3):
        for name in CLUSTERS:
            world.eventually(
                f"{name}-3 counts as gone",
                lambda name=name: f"{name}-3" not in world.groups[name].view.live(),  # type: ignore[misc]
                LONGEST,
            )
        for name, host in ((ALPHA, 1), (BETA, 2)):
            world.stack.start_consumer(f"{name}-3", host)
        world.eventually("they are replaced", world.settled, LONGEST)
        world.flows(time.time())
    for consumer in old:
        world.eventually(
            f"the {consumer.id} of before has ended",
            lambda consumer=consumer: not consumer.process.alive(),  # type: ignore[misc]
            ENDS_WITHIN,
        )
    world.eventually("all is well", world.settled, LONGEST)
    for name in CLUSTERS:
        _move(world, f"{name}-3", 3)
    return 2


def cut_until_taken_over(world: World) -> int:
    """Hosts 2 and 3 one after the other, until the consumers elsewhere have all. Then they come back as they were."""
    for host in (2, 3):
        gone = [f"{name}-{host}" for name in CLUSTERS]
        with world.cut(host):
            world.taken_over(gone)
            world.flows(time.time())
        world.eventually("all are back", world.well, LONGEST)
    return 2


def cut_the_coordinator(world: World) -> None:
    """Host 1, for longer than a session lasts: nothing is planned, and what flows elsewhere goes on."""
    elsewhere = {
        (name, p)
        for name in CLUSTERS
        for p, consumer in world.groups[name].view.owners("numbers").items()
        if not consumer.endswith("-1")
    }
    with world.cut(1):
        began = time.time()
        for name, partition in sorted(elsewhere):
            world.eventually(
                f"{name} goes on with {partition}",
                lambda name=name, partition=partition: world.committed_since(
                    name, "numbers", partition, began
                ),  # type: ignore[misc]
                LONGEST,  # commits wait for another leader, group coordinator and transaction coordinator
            )


def one_way(world: World) -> int:
    """Each host in turn no longer reaches the next one."""
    for source, target in ((2, 1), (1, 2), (3, 1)):
        with world.one_way(source, target):
            time.sleep(8.0)  # the cut's length: beyond a session's, a broker's and a gossip's patience
        world.eventually("all is well again", world.settled, LONGEST)
    return 3


def one_way_once(world: World) -> None:
    """Host 2 no longer reaches host 1, which reaches it."""
    with world.one_way(2, 1):
        time.sleep(8.0)


def _move(world: World, consumer: str, host: int) -> None:
    """Stop it in order, and start it on `host`."""
    world.stop(world.consumer(consumer))
    world.stack.start_consumer(consumer, host)
    world.eventually(f"{consumer} is on host {host}", world.settled, LONGEST)


FAULTS = (
    Fault("a host cut off for a moment", cut_for_a_moment),
    Fault("a host no longer reaches another one (once)", one_way_once),
    Fault(
        "a host cut off for longer than it takes to replace its consumers",
        cut_until_replaced,
        long=True,
    ),
    Fault(
        "a host cut off until its consumers' partitions are others', and back",
        cut_until_taken_over,
        long=True,
    ),
    Fault("the coordinator's host cut off", cut_the_coordinator, long=True),
    Fault("a host no longer reaches another one", one_way, long=True),
)
