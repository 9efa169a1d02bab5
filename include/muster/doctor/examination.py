"""All checks of a cluster, the servers side by side: what one comes to does not keep another from being made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pydantic import SecretStr

from muster.cluster.reader import read_once
from muster.cluster.reading import Place
from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.doctor.consul import NEEDED, OVERRIDES, check_consul
from muster.doctor.consumers import check_consumers
from muster.doctor.decisions import check_decisions
from muster.doctor.findings import Check, Part
from muster.doctor.kafka import check_brokers, check_group, check_kafka
from muster.doctor.settings import check_settings
from muster.doctor.zookeeper import check_zookeeper
from muster.edges.consul_jobs import GENERATIONS, STOP
from muster.settings.clusters import ClusterSettings
from muster.settings.connection_lookup import Connections
from muster.settings.connection_parsing import ConnectionSettingsError
from muster.settings.connections import ConsulSettings, KafkaSettings, ZooKeeperSettings

log = logging.getLogger(__name__)

T = TypeVar("T")
_Job = Callable[[], Iterator[Check]]
_Named = tuple[str, _Job]
"""The name of a part, and its checks."""


def examine(cluster: ClusterSettings, connections: Connections, timeout: float) -> list[Check]:
    """Check all that the cluster needs. No single call to a server takes longer than `timeout` seconds."""
    checks = list(check_settings(Part("settings"), cluster))
    connections = connections.within(timeout)
    found = _Finder(connections, checks).find_all(cluster)
    jobs = list(_jobs(cluster, found, connections))
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="doctor") as pool:
        for done in [pool.submit(_made, Part(name), job) for name, job in jobs]:
            checks += done.result()
    return checks


@dataclass(frozen=True)
class _Found:
    """The connections of a cluster and of its jobs, None for those that are missing, wrong, or not asked for."""

    zookeeper: ZooKeeperSettings | None
    consul: ConsulSettings | None
    kafka: KafkaSettings | None
    token: SecretStr | None
    jobs_zookeeper: ZooKeeperSettings | None
    jobs_consul: ConsulSettings | None
    jobs_kafka: KafkaSettings | None


class _Finder:
    """Looks connections up, and puts into `checks` what came of it."""

    def __init__(self, connections: Connections, checks: list[Check]) -> None:
        self._from = connections
        self._checks = checks
        self._part = Part("connections")

    def find_all(self, cluster: ClusterSettings) -> _Found:
        jobs, source = cluster.consumers, self._from
        zookeeper = self._find("zookeeper", cluster.zookeeper, source.zookeeper)
        consul = self._find("consul", cluster.consul, source.consul)
        kafka = self._find("kafka", cluster.kafka, source.kafka)
        self._find("spark", jobs.spark, source.fields)
        return _Found(
            zookeeper,
            consul,
            kafka,
            self._find("status", cluster.status, source.token),
            self._find("consumers.zookeeper", jobs.zookeeper, source.zookeeper),
            self._find("consumers.consul", jobs.consul, source.consul),
            self._find("consumers.kafka", jobs.kafka, source.kafka),
        )

    def _find(self, role: str, conn_id: str | None, read: Callable[[str], T]) -> T | None:
        if conn_id is None:
            return None
        try:
            found = read(conn_id)
        except ConnectionSettingsError as error:
            self._checks.append(self._part.refused(role, error))
            return None
        except Exception as error:
            # Airflow's database or a secrets backend; their messages may hold what is secret.
            log.debug("connection %s cannot be looked up", conn_id, exc_info=True)
            problem = f"{conn_id} cannot be looked up in Airflow ({type(error).__name__})"
            step = f"check that Airflow works here: airflow connections get {conn_id}"
            self._checks.append(self._part.failed(role, problem, step))
            return None
        self._checks.append(self._part.ok(role, f"{conn_id} is there and well-formed"))
        return found


def _jobs(cluster: ClusterSettings, found: _Found, connections: Connections) -> Iterator[_Named]:
    """What is to be looked at side by side, by part; what has no connection is skipped."""
    own = cluster.consumers

    def job(
        name: str, settings: object | None, check: Callable[..., Iterator[Check]], *more: object
    ) -> _Named:
        part = Part(name)
        return name, partial(_skipped, part) if settings is None else partial(check, part, settings, *more)

    yield job("zookeeper", found.zookeeper, check_zookeeper, cluster.name, True)
    yield job("consul", found.consul, check_consul, cluster, NEEDED, OVERRIDES)
    if own.kafka:
        yield job("kafka", found.kafka, check_brokers, cluster)
        yield job("kafka", found.jobs_kafka, check_group, cluster)
    else:
        yield job("kafka", found.kafka, check_kafka, cluster)
    if own.zookeeper:
        yield job("consumers.zookeeper", found.jobs_zookeeper, check_zookeeper, cluster.name, False)
    if own.consul:
        yield job("consumers.consul", found.jobs_consul, check_consul, cluster, (STOP, GENERATIONS), ())
    yield "cluster", partial(_state_checks, cluster, found, connections)


def _state_checks(cluster: ClusterSettings, found: _Found, connections: Connections) -> Iterator[Check]:
    """What people decided, and the consumers, as far as the connections can be used."""
    decisions, consumers = Part("decisions"), Part("consumers")
    if found.consul is None:
        yield from (*_skipped(decisions), *_skipped(consumers))
        return
    asked = cluster.status is None or found.token is not None
    places = (Place.CONSUL, Place.CONSUMERS) if asked else (Place.CONSUL,)
    reading = read_once(cluster, Sources(cluster, connections), places)
    state = ClusterState(cluster, reading, time.time())
    yield from check_decisions(decisions, state)
    yield from check_consumers(consumers, state) if asked else _skipped(consumers)


def _made(part: Part, job: _Job) -> list[Check]:
    """The checks that `job` makes. A fault of ours in one part must not hide what the others found."""
    made: list[Check] = []
    try:
        made.extend(job())
    except Exception as error:
        log.exception("the checks of %s broke off", part.name)
        step = "this is a fault in Muster; report it with the lines above"
        made.append(part.failed("all", f"broke off: {type(error).__name__}", step))
    return made


def _skipped(part: Part) -> Iterator[Check]:
    yield part.skipped("all", "its connection cannot be used")
