"""What can happen to ZooKeeper, Consul, Kafka and Airflow. What flows has to flow on through most of it."""

from __future__ import annotations

from itertools import cycle

from muster.core.model import State
from tests.faults.real.world import World
from tests.faults.real.zookeeper_proxy import Moment, Trap
from tests.support.fault_world import Fault

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


def kill_zookeeper_and_its_leader(world: World) -> int:
    """All of it while consumer 1 leaves; only the leader while it comes back, seen to its end by the other two."""
    world.isolate(1)
    world.eventually("the rebalance has begun", lambda: world.state() is not State.STABLE)
    world.stack.ensemble.kill()
    world.stack.ensemble.start()
    world.eventually("the rebalance is done", lambda: world.settled(1), world.longest)
    leader = world.eventually("a leader", world.stack.ensemble.leader)
    world.restore(1)
    world.eventually("the next one has begun", lambda: world.state() is not State.STABLE)
    leader.kill()
    world.eventually("all have their share again", world.even, world.longest)
    leader.start()
    return 2


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
    """In mid-rebalance. Until it is back nothing is planned; then the next run goes on where the dead one stopped."""
    world.isolate(3)
    world.eventually("the rebalance has begun", lambda: world.state() is not State.STABLE)
    world.stack.airflow.scheduler.kill()
    world.stack.airflow.scheduler.start()
    world.eventually("the rebalance is done", lambda: world.settled(3), world.longest)
    world.restore(3)


def kill_at_writes(world: World) -> int:
    """The writer dies before each write of one rebalance, and after it, which the next one goes on from.

    Returns how often one was killed.
    """
    written = killed = 0
    moments: tuple[Moment, ...] = ("before", "after")
    world.isolate(1)
    for moment in cycle(moments):
        trap = world.stack.watched.trap = Trap(1, moment)
        world.eventually(
            f"killed {moment} write {written + 1}, or done",
            lambda trap=trap: trap.sprung.is_set() or (world.settled(1) and not trap.seen),  # type: ignore[misc]
            world.longest,
        )
        if not trap.sprung.is_set():
            break
        killed += 1
        written += moment == "after"
    world.stack.watched.trap = None
    assert written >= FEWEST_WRITES, f"only {written} writes"
    world.restore(1)
    return killed


FAULTS = (
    Fault("SIGKILL of advance_state before and after each write", kill_at_writes, planned=True, long=True),
    Fault("ZooKeeper stopped and started", stop_zookeeper, long=True),
    Fault("ZooKeeper frozen", freeze_zookeeper, long=True),
    Fault(
        "ZooKeeper killed in mid-rebalance, and its leader in the next one",
        kill_zookeeper_and_its_leader,
        long=True,
    ),
    Fault("Consul killed and restarted", stop_consul, long=True),
    Fault("Consul's agent frozen", freeze_consul, long=True),
    Fault("Kafka's broker restarted", restart_kafka, long=True),
    Fault("Kafka's broker killed and restarted", kill_kafka),
    Fault("Airflow's scheduler killed in mid-rebalance, restarted", kill_scheduler),
)
