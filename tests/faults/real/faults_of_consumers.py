"""What can happen to a consumer's processes, and to the disk that it writes to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import httpx
import psutil

from tests.faults.real.faults import Fault
from tests.faults.real.jobs import Job, frozen
from tests.faults.real.world import CONSUMERS_DAG, World


def kill_driver(world: World) -> None:
    world.job(1).driver().kill()


def kill_jvm(world: World) -> None:
    world.job(2).jvm().kill()


def kill_worker(world: World) -> None:
    for worker in world.eventually("a worker", world.job(3).forked):
        worker.kill()


def kill_planner(world: World) -> None:
    world.eventually("a planner", world.job(1).planner).kill()


def freeze_driver(world: World) -> None:
    _freeze_until_replaced(world, 2, lambda job: [job.driver()])


def freeze_job(world: World) -> None:
    _freeze_until_replaced(world, 3, Job.processes)


def _freeze_until_replaced(
    world: World, number: int, processes: Callable[[Job], Sequence[psutil.Process]]
) -> None:
    """It is a zombie when it goes on: its partitions are others', and those have committed beyond it."""
    held = world.held(number)
    with frozen(processes(world.job(number))):
        world.eventually(f"consumer {number} is replaced", lambda: world.settled(number))
        world.flows_on(0.0, held)


def freeze_jvm(world: World) -> None:
    _freeze_for_a_while(world, 1, lambda job: [job.jvm()])


def freeze_worker(world: World) -> None:
    _freeze_for_a_while(world, 2, Job.forked)


def _freeze_for_a_while(
    world: World, number: int, processes: Callable[[Job], Sequence[psutil.Process]]
) -> None:
    """It still answers, so nobody replaces it: its own partitions wait, and the others flow."""
    others = set(world.producer.times) - world.held(number)
    with frozen(world.eventually("the process", lambda: processes(world.job(number)))):
        world.flows_on(4.0, others)


def fill_disk(world: World) -> None:
    """Until every consumer has said so on its status page."""
    workers = [worker for number in world.numbers() for worker in world.job(number).workers()]
    before = {number: world.status(number)["query_failures"] for number in world.numbers()}
    with world.stack.disk.full(workers):
        for number in world.numbers():
            world.eventually(
                f"consumer {number} cannot write",
                lambda number=number: world.status(number)["query_failures"] > before[number],  # type: ignore[misc]
            )


def roll(world: World) -> None:
    """Each consumer leaves in order, and joins again, by its task being cleared; no other partition pauses."""
    for number in world.numbers():
        job, run = world.job(number), world.task_of(number)["dag_run_id"]
        before = job.incarnation
        with world.nothing_else_pauses(number):
            world.api.clear(CONSUMERS_DAG, run, "consumer", number - 1)
            world.eventually(f"consumer {number} has left", lambda number=number: world.settled(number))  # type: ignore[misc]
        with world.nothing_else_pauses(number):
            world.eventually(
                f"consumer {number} is back",
                lambda job=job, before=before: job.incarnation != before and world.even(),  # type: ignore[misc]
                120,
            )


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


def cut_off_from_consul(world: World) -> None:
    """It goes on with what it has, and it passes its check, so nothing moves."""
    with world.nothing_else_pauses(0), world.stack.consul_proxy.cut(world.job(1).session):
        world.flows_on(4.0)


def cut_off_from_zookeeper(world: World) -> None:
    """It goes on with what it has; what is to move to it waits until it hears of it."""
    held = world.held(2)
    with world.cut_from_zookeeper(2):
        world.isolate(1)
        world.flows_on(4.0, held)
    world.eventually("the others have all", lambda: world.settled(1))
    world.restore(1)


def session_expires(world: World) -> None:
    """Longer than its session lasts, all the while with what it has."""
    before = world.stack.watched.expired
    with world.nothing_else_pauses(0):
        with world.cut_from_zookeeper(3):
            world.flows_on(7.0)
        world.eventually("its session has expired", lambda: world.stack.watched.expired > before)


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
    Fault("SIGKILL of a consumer's driver", kill_driver),
    Fault("a consumer cut off from Consul only", cut_off_from_consul),
    Fault("a consumer cut off from ZooKeeper only, in mid-rebalance", cut_off_from_zookeeper),
    Fault("a consumer cut off from Kafka only", cut_off_from_kafka),
    Fault("SIGKILL of a consumer's JVM", kill_jvm),
    Fault("SIGKILL of a consumer's Python workers", kill_worker),
    Fault("SIGKILL of a consumer's planner", kill_planner),
    Fault("SIGSTOP and SIGCONT of a consumer's driver, replaced", freeze_driver),
    Fault("SIGSTOP and SIGCONT of a whole consumer, replaced", freeze_job),
    Fault("SIGSTOP and SIGCONT of a consumer's JVM", freeze_jvm),
    Fault("SIGSTOP and SIGCONT of a consumer's Python workers", freeze_worker),
    Fault("a consumer found failing and cut off from Consul, replaced", replaced_while_it_runs),
    Fault("a consumer's ZooKeeper session expired", session_expires),
    Fault("a slow network from a consumer to Kafka", slow_to_kafka),
    Fault("the sink's disk full", fill_disk),
    Fault("rolling restart of all consumers", roll, planned=True),
)
