"""What people do to topics and nodes: delete them, create them again, add partitions, all under load."""

from __future__ import annotations

import time

from tests.hosts.stack import ALPHA, BETA, NUMBERS, VOLATILE
from tests.hosts.world import CLUSTERS, LONGEST, World
from tests.support.fault_world import Fault

BURST = 100
"""Numbers at once that have a topic outgrow its predecessor before consumers look again."""
WAY = 400
"""Records a partition that the topic before has to have, to be smaller than, or to be outgrown."""


def recreated_smaller(world: World) -> None:
    """The new topic ends before the positions in the one of before, for as long as it takes."""
    world.eventually("the topic is large", lambda: min(world.produced(VOLATILE)) > WAY, LONGEST)
    world.recreate(VOLATILE)


def recreated_outgrown(world: World) -> None:
    """The new topic has more records than the one of before, as soon as consumers see it."""
    world.eventually("the topic is large", lambda: min(world.produced(VOLATILE)) > WAY, LONGEST)
    before = max(world.produced(VOLATILE))
    world.recreate(VOLATILE, at_once=BURST)
    world.eventually("it is outgrown", lambda: min(world.produced(VOLATILE)) > before + BURST)
    world.producers[VOLATILE].at_once = 1


def add_partitions(world: World) -> None:
    world.add_partitions(NUMBERS, len(world.partitions(NUMBERS)) + 1)
    world.eventually("they are given to consumers", world.settled, LONGEST)


def delete_state_at_rest(world: World) -> int:
    for name in CLUSTERS:
        world.delete(f"/consumers/{name}/state/{NUMBERS}")
        world.eventually("all is well again", world.settled, LONGEST)
    return 2


def delete_state_in_mid_rebalance(world: World) -> None:
    """While a consumer that lets go of a partition still has its last batch of it."""
    with world.moving(ALPHA):
        world.delete(f"/consumers/{ALPHA}/state/{NUMBERS}")
        world.left_alone(ALPHA)


def delete_both_at_rest(world: World) -> None:
    world.delete(f"/consumers/{BETA}/state/{NUMBERS}", f"/consumers/{BETA}/assignments/{NUMBERS}")
    time.sleep(1.0)  # that they are gone may be seen, or may not


def delete_both_in_mid_rebalance(world: World) -> None:
    with world.moving(ALPHA):
        world.delete(f"/consumers/{ALPHA}/state/{NUMBERS}", f"/consumers/{ALPHA}/assignments/{NUMBERS}")
        world.left_alone(ALPHA)


FAULTS = (
    Fault("partitions added under load", add_partitions, planned=True, long=True),
    Fault("a state node deleted", delete_state_at_rest, long=True),
    Fault("a state node deleted in mid-rebalance", delete_state_in_mid_rebalance),
    Fault("assignment and state node deleted", delete_both_at_rest, long=True),
    Fault("assignment and state node deleted in mid-rebalance", delete_both_in_mid_rebalance, long=True),
    Fault("a topic deleted and created again, smaller", recreated_smaller),
    Fault("a topic deleted and created again, outgrown", recreated_outgrown, long=True),
)
