"""What can happen to ZooKeeper, Consul, Kafka and Airflow. What flows has to flow on through most of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from muster.core.model import State
from tests.faults.real.faults import Fault
from tests.faults.real.world import LONGEST, World
from tests.faults.real.zookeeper_proxy import Moment, Trap

FEWEST_WRITES = 3
"""Of a rebalance: take away, give, all is Stable. What is closed later is given in a write of its own."""


def stop_zookeeper(world: World) -> None:
    with world.nothing_else_pauses(0):
        world.stack.ensemble.stop()
        world.flows_on(2.0)
        world.stack.ensemble.start()


def freeze_zookeeper(world: World) -> None:
    with world.nothing_else_pauses(0):
        world.stack.ensemble.pause()
        try:
            world.flows_on(5.0)
        finally:
            world.stack.ensemble.resume()


def restart_zookeeper_in_mid_rebalance(world: World) -> None:
    world.isolate(1)
    world.eventually("the rebalance has begun", lambda: world.state() is not State.STABLE)
    world.stack.ensemble.kill()
    world.stack.ensemble.start()
    _and_back(world, 1)


def lose_leader(world: World) -> None:
    """In mid-rebalance, which the other two servers see to its end."""
    leader = world.eventually("a leader", world.stack.ensemble.leader)
    world.isolate(2)
    world.eventually("the rebalance has begun", lambda: world.state() is not State.STABLE)
    leader.kill()
    _and_back(world, 2)
    world.eventually("all have their share again", world.even)
    leader.start()


def stop_consul(world: World) -> None:
    with world.nothing_else_pauses(0):
        world.stack.consul.kill()
        world.flows_on(2.0)
    world.stack.consul.start()


def freeze_consul(world: World) -> None:
    with world.nothing_else_pauses(0):
        world.stack.consul.pause()
        try:
            world.flows_on(5.0)
        finally:
            world.stack.consul.resume()


def restart_kafka(world: World) -> None:
    world.stack.kafka.stop()
    world.stack.kafka.start()


def kill_kafka(world: World) -> None:
    world.stack.kafka.kill()
    world.stack.kafka.start()


def kill_scheduler(world: World) -> None:
    """In mid-rebalance. Until it is back nobody plans; then the next run goes on where the dead one stopped."""
    world.isolate(3)
    world.eventually("the rebalance has begun", lambda: world.state() is not State.STABLE)
    world.stack.airflow.scheduler.kill()
    world.stack.airflow.scheduler.start()
    _and_back(world, 3)


def kill_at_write(world: World, number: int) -> int:
    """Two rebalances: in the first one it dies before its n-th write, in the other one after it.

    Returns in how many of them there were so many writes.
    """
    steps: tuple[tuple[Moment, Callable[[int], None], Callable[[], bool]], ...] = (
        ("before", world.isolate, lambda: world.settled(1)),
        ("after", world.restore, world.even),
    )
    killed = 0
    for moment, change, done in steps:
        trap = world.stack.watched.trap = Trap(number, moment)
        change(1)
        world.eventually("the rebalance is done", done, LONGEST)
        if trap.seen >= number:
            world.eventually("advance_state is dead", trap.sprung.is_set)
            killed += 1
        world.stack.watched.trap = None
    assert killed == len(steps) or number > FEWEST_WRITES, f"{killed} were killed at write {number}"
    return killed


def _and_back(world: World, number: int) -> None:
    try:
        world.eventually("the rebalance is done", lambda: world.settled(number), LONGEST)
    finally:  # or no later fault could begin
        world.restore(number)


FAULTS = (
    *(
        Fault(
            f"SIGKILL of advance_state, write {number}", partial(kill_at_write, number=number), planned=True
        )
        for number in range(1, FEWEST_WRITES + 2)
    ),
    Fault("ZooKeeper stopped and started", stop_zookeeper),
    Fault("ZooKeeper frozen", freeze_zookeeper),
    Fault("ZooKeeper killed in mid-rebalance, restarted", restart_zookeeper_in_mid_rebalance),
    Fault("ZooKeeper's leader killed in mid-rebalance", lose_leader),
    Fault("Consul killed and restarted", stop_consul),
    Fault("Consul's agent frozen", freeze_consul),
    Fault("Kafka's broker restarted", restart_kafka),
    Fault("Kafka's broker killed and restarted", kill_kafka),
    Fault("Airflow's scheduler killed in mid-rebalance, restarted", kill_scheduler),
)
