"""What can happen to a consumer's processes, and to the disk that it writes to."""

from __future__ import annotations

import httpx

from tests.faults.real.world import CONSUMERS_DAG, World
from tests.support.consumer_processes import frozen
from tests.support.fault_world import Fault

SOON = 20.0
"""Seconds until a consumer whose task is cleared has to hear of it, on a machine that is busy with other things."""


def kill_driver(world: World) -> None:
    world.job(1).driver().kill()


def kill_jvm(world: World) -> None:
    world.job(2).jvm().kill()


def kill_worker(world: World) -> None:
    for worker in world.eventually("a worker", world.job(3).forked):
        worker.kill()


def freeze_until_replaced(world: World) -> int:
    """The driver of one and all processes of another: zombies when they go on, for their partitions are the third's,
    which has committed beyond them."""
    held = world.held(2) | world.held(3)
    with frozen([world.job(2).driver(), *world.job(3).processes()]):
        for number in (2, 3):
            world.eventually(f"consumer {number} is replaced", lambda number=number: world.settled(number))  # type: ignore[misc]
        world.flows_on(0.0, held)
    return 2


def freeze_for_a_while(world: World) -> int:
    """The JVM of one and the workers of another: they still answer, so they are not replaced. Their partitions wait,
    and the third's flow."""
    with frozen([world.job(1).jvm(), *world.eventually("the workers", world.job(2).forked)]):
        world.flows_on(4.0, world.held(3))
    return 2


def fill_disk(world: World) -> None:
    """Until every consumer has said so on its status page."""
    workers = [worker for number in world.numbers() for worker in world.job(number).workers()]
    before = {number: world.status(number)["handler_failures"] for number in world.numbers()}
    with world.stack.disk.full(workers):
        for number in world.numbers():
            world.eventually(
                f"consumer {number} cannot write",
                lambda number=number: world.status(number)["handler_failures"] > before[number],  # type: ignore[misc]
            )


def roll(world: World) -> int:
    """Each consumer leaves in order, and joins again, by its task being cleared; no other partition pauses."""
    for number in world.numbers():
        job, run = world.job(number), world.task_of(number)["dag_run_id"]
        before = job.incarnation
        with world.nothing_else_pauses(number):
            world.api.clear(CONSUMERS_DAG, run, "consumer", number - 1)
            world.eventually(
                f"consumer {number} is asked to stop, or gone already",
                job.asked_or_gone,
                SOON,
            )
            world.eventually(f"consumer {number} has left", lambda number=number: world.settled(number))  # type: ignore[misc]
        with world.nothing_else_pauses(number):
            world.eventually(
                f"consumer {number} is back",
                lambda job=job, before=before: job.incarnation != before and world.even(),  # type: ignore[misc]
                world.longest,
            )
    return len(world.numbers())


def replaced_while_it_runs(world: World) -> None:
    """Cut off from Consul in both directions: it can neither hear of it nor be found healthy, and goes on."""
    consumer, held = world.job(3), world.held(3)
    agent = f"http://{world.stack.consul.address}/v1/agent"
    check = {
        "ID": "network",
        "Name": "the network between Consul and the consumer",
        "ServiceID": consumer.consumer,
        "TTL": "3600s",
        "Status": "critical",
    }
    with world.stack.consul_proxy.cut(consumer.session):
        httpx.put(f"{agent}/check/register", json=check, timeout=5, trust_env=False).raise_for_status()
        world.eventually("it is replaced", lambda: world.settled(3))
        world.flows_on(0.0, held)
        httpx.put(f"{agent}/check/deregister/network", timeout=5, trust_env=False).raise_for_status()


def cut_off_from_zookeeper(world: World) -> None:
    """It goes on with what it has; what is to move to it waits until it hears of it."""
    held = world.held(2)
    with world.cut_from_zookeeper(2):
        world.isolate(1)
        world.flows_on(4.0, held)
    world.eventually("the others have all", lambda: world.settled(1))
    world.restore(1)


def no_consul_and_no_session(world: World) -> int:
    """One is cut off from Consul and passes its check, another's ZooKeeper session expires: nothing moves."""
    before = world.stack.watched.expired
    with world.nothing_else_pauses(0), world.stack.consul_proxy.cut(world.job(1).session):
        with world.cut_from_zookeeper(3):
            world.flows_on(7.0)
        world.eventually("its session has expired", lambda: world.stack.watched.expired > before)
    return 2


def cut_off_from_kafka(world: World) -> None:
    """Its own partitions wait; it passes its check and says what is wrong."""
    others = set(world.producer.times) - world.held(1)
    with world.stack.kafka_proxy.cut(world.job(1).session):
        world.flows_on(6.0, others)


def slow_to_kafka(world: World) -> None:
    """Every packet is a fifth of a second late, for as long as it takes to see all partitions flow so."""
    with world.stack.kafka_proxy.cut(world.job(2).session, delay=0.2):
        world.flows_on(3.0)


FAULTS = (
    Fault("SIGKILL of a consumer's driver", kill_driver, mended=False, long=True),
    Fault("SIGKILL of a consumer's JVM", kill_jvm, mended=False),
    Fault("SIGKILL of a consumer's Python workers", kill_worker),
    Fault("a consumer cut off from ZooKeeper only, in mid-rebalance", cut_off_from_zookeeper),
    Fault("SIGSTOP and SIGCONT of a driver and of a whole consumer, replaced", freeze_until_replaced),
    Fault(
        "SIGSTOP and SIGCONT of a consumer's JVM and of another's Python workers",
        freeze_for_a_while,
        long=True,
    ),
    Fault("a consumer found failing and cut off from Consul, replaced", replaced_while_it_runs),
    Fault(
        "a consumer cut off from Consul only, and another's ZooKeeper session expired",
        no_consul_and_no_session,
        long=True,
    ),
    Fault("a consumer cut off from Kafka only", cut_off_from_kafka, long=True),
    Fault("a slow network from a consumer to Kafka", slow_to_kafka, long=True),
    Fault("the sink's disk full", fill_disk),
    Fault("rolling restart of all consumers", roll, planned=True, long=True),
)
