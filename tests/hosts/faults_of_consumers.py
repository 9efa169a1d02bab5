"""What can happen to consumers, and what people do with them in order."""

from __future__ import annotations

import signal
import time

from tests.hosts.stack import ALPHA, BETA, NUMBERS
from tests.hosts.world import CLUSTERS, LONGEST, World
from tests.support.fault_world import Fault

ASSIGNORS = ("range", "round-robin", "failover", "co-partitioned", "load-aware", "sticky")


def killed(world: World) -> int:
    """One of each cluster, and started again when the others have its partitions."""
    gone = [f"{name}-1" for name in CLUSTERS]
    for name in gone:
        world.kill(world.consumer(name))
    world.taken_over(gone)
    for name in gone:
        world.stack.start_consumer(name, 1)
    return 2


def restarted_within_the_delay(world: World) -> None:
    """Static membership: a consumer that is back within `rebalance_delay` has what it had, and nothing else moves."""
    before = world.epochs(BETA), world.groups[BETA].view.owners(NUMBERS)
    world.kill(world.consumer("beta-2"))
    world.stack.start_consumer("beta-2", 2)
    began = time.time()
    world.flows(began, [BETA])
    assert (world.epochs(BETA), world.groups[BETA].view.owners(NUMBERS)) == before, "something moved"


def frozen_until_replaced(world: World) -> int:
    """A zombie when it goes on: the others have its partitions and have committed beyond it."""
    consumer = world.consumer("alpha-3")
    with world.away(incarnation=consumer.incarnation):
        consumer.process.signal(signal.SIGSTOP)
        try:
            world.taken_over(["alpha-3"])
            world.flows(time.time())
        finally:
            consumer.process.signal(signal.SIGCONT)
    world.eventually("it has a share again", world.settled, LONGEST)
    return 1


def hangs(world: World) -> None:
    """A handler that never ends: a person hears of it, isolates the consumer, and the others go on."""
    began = time.time()
    with world.hanging("alpha-2") as consumer:
        others = [p for p in world.partitions(NUMBERS) if p not in world.held("alpha-2")]
        world.eventually("a person is told", lambda: world.names("alpha-2", began), LONGEST)
        assert others, "others have something"
        with world.away(incarnation=consumer.incarnation):
            world.isolate("alpha-2")
            world.eventually("the others have all", lambda: world.settled(["alpha-2"]), LONGEST)
            world.flows(time.time())
    world.restore("alpha-2")


def isolated(world: World) -> int:
    """A healthy one of each cluster: it closes what it has, and nothing is read twice."""
    for name in CLUSTERS:
        world.isolate(f"{name}-2")
        world.eventually("the others have all", lambda name=name: world.settled([f"{name}-2"]), LONGEST)  # type: ignore[misc]
        world.restore(f"{name}-2")
        world.eventually("it has a share again", world.settled, LONGEST)
    return 2


def rolled(world: World) -> int:
    """Each consumer of each cluster leaves in order, and comes back."""
    rolled = [f"{name}-{number}" for number in (1, 2, 3) for name in CLUSTERS]
    for consumer in rolled:
        host = world.consumer(consumer).host
        world.stop(world.consumer(consumer))
        world.stack.start_consumer(consumer, host)
        world.eventually(f"{consumer} is back", world.settled, LONGEST)
    return len(rolled)


def assignors(world: World) -> int:
    """Every one plans alpha in turn."""
    for assignor in ASSIGNORS:
        since = time.time()
        world.choose(ALPHA, assignor)
        world.eventually(
            f"{assignor} has planned",
            lambda assignor=assignor, since=since: world.planned_by(ALPHA, assignor, since),  # type: ignore[misc]
            LONGEST,
        )
        world.flows(time.time(), [ALPHA])
    world.groups[ALPHA].discovery.overrides.clear_assignor()
    return len(ASSIGNORS)


FAULTS = (
    Fault("every assignor in turn", assignors, planned=True, long=True),
    Fault("a healthy consumer isolated", isolated, planned=True),
    Fault("every consumer restarted in turn", rolled, planned=True, long=True),
    Fault("a consumer killed", killed, long=True),
    Fault("a consumer killed and back within rebalance_delay", restarted_within_the_delay),
    Fault("a consumer frozen until it is replaced", frozen_until_replaced, long=True),
    Fault("a handler hangs, and its consumer is isolated", hangs, long=True),
)
