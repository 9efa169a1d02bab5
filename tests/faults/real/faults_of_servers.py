"""What can happen to ZooKeeper, Consul, Kafka and Airflow. What flows has to flow on through most of it."""

from __future__ import annotations

from functools import partial

from muster.core.model import State
from tests.faults.real.faults import Fault
from tests.faults.real.world import World
from tests.faults.real.zookeeper_proxy import Trap


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


def kill_at_write(world: World, number: int) -> None:
    """Two rebalances: in the first one it dies before its n-th write, in the other one after it."""
    for moment, change in (("before", world.isolate), ("after", world.restore)):
        trap = world.stack.watched.trap = Trap(number, moment)  # type: ignore[arg-type]
        change(1)
        world.eventually(f"advance_state is dead, {moment} write {number}", trap.sprung.is_set)
        if moment == "before":
            world.eventually("the rebalance is done", lambda: world.settled(1))
    world.eventually("the rebalance back is done", world.even)
    world.stack.watched.trap = None


def _and_back(world: World, number: int) -> None:
    world.eventually("the rebalance is done", lambda: world.settled(number))
    world.restore(number)


FAULTS = (
    *(
        Fault(f"SIGKILL of advance_state, write {number}", partial(kill_at_write, number=number), True, 2)
        for number in (1, 2, 3)
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
