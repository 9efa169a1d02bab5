"""What can happen to ZooKeeper, Kafka, Consul and the coordinator, of which there are several."""

from __future__ import annotations

import time

from devstack.server import Server
from tests.hosts.stack import ALPHA, BETA
from tests.hosts.world import CLUSTERS, LONGEST, World
from tests.support.fault_world import Fault


def _killed(world: World, server: Server) -> None:
    """Kill it, see everything flow without it, and start it again."""
    server.kill()
    world.flows(time.time())
    server.start()


def zookeeper_leader(world: World) -> None:
    _killed(world, world.eventually("ZooKeeper has a leader", world.stack.ensemble.leader))


def zookeeper_leader_in_mid_rebalance(world: World) -> None:
    leader = world.eventually("ZooKeeper has a leader", world.stack.ensemble.leader)
    with world.moving(ALPHA):
        leader.kill()
    world.flows(time.time())
    leader.start()


def consul_leader(world: World) -> None:
    _killed(world, world.eventually("Consul has a leader", world.stack.consuls.leader))


def agent_restarted(world: World) -> int:
    """The agent that a host's consumers are registered with: it comes back with checks that have not passed yet."""
    for number in (2, 3):
        agent = world.stack.consuls.clients[number - 1]
        agent.restart()
        world.flows(time.time())
        world.eventually("all is well again", world.settled, LONGEST)
    return 2


def agent_killed(world: World) -> None:
    """Away for so long that the consumers of its host, which go on, count as gone."""
    agent = world.stack.consuls.clients[1]
    agent.kill()
    world.taken_over([f"{name}-2" for name in CLUSTERS])
    world.flows(time.time())
    agent.start()


def broker(world: World) -> None:
    """One that coordinates neither group."""
    coordinators = {world.group_coordinator(name) for name in CLUSTERS}
    number = min({1, 2, 3} - coordinators, default=3)
    _killed(world, world.stack.brokers[number])


def group_coordinator(world: World) -> int:
    """The brokers that keep the offsets of the groups, one after the other."""
    for name in CLUSTERS:
        _killed(world, world.stack.brokers[world.group_coordinator(name)])
        world.eventually("all is well again", world.well, LONGEST)
    return 2


def coordinator_in_mid_rebalance(world: World) -> int:
    """Muster's own, while a partition moves; the one that is started then carries the move on."""
    for name in (ALPHA, BETA):
        with world.moving(name):
            world.stack.coordination.kill(name)
            world.stack.coordination.start(name)
    return 2


FAULTS = (
    Fault("a Consul agent restarted", agent_restarted, long=True),
    Fault("a Consul agent killed, and back after its node has failed", agent_killed, long=True),
    Fault("Consul's leader killed", consul_leader),
    Fault("ZooKeeper's leader killed", zookeeper_leader),
    Fault("ZooKeeper's leader killed in mid-rebalance", zookeeper_leader_in_mid_rebalance, long=True),
    Fault("a broker killed", broker, long=True),
    Fault("a group's coordinator broker killed", group_coordinator, long=True),
    Fault("the coordinator killed in mid-rebalance", coordinator_in_mid_rebalance, long=True),
)
