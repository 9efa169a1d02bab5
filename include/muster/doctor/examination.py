"""All checks of a cluster, the servers side by side: what one comes to does not keep another from being made."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from muster.cluster.reader import read_once
from muster.cluster.reading import SourceName
from muster.cluster.sources import Sources
from muster.cluster.state import ClusterState
from muster.core.deployment import Deployment
from muster.doctor.airflow import check_pools
from muster.doctor.cluster import check_consumers, check_decisions, check_deployment
from muster.doctor.consul import NEEDED, OVERRIDES, check_consul
from muster.doctor.findings import Check, Part, explained
from muster.doctor.kafka import BROKERS, GROUP, check_kafka
from muster.doctor.settings import check_executors, check_settings
from muster.doctor.zookeeper import check_zookeeper
from muster.edges.consul_answers import ANSWERS
from muster.edges.consul_jobs import GENERATIONS, STOP
from muster.settings.cluster_settings import ClusterSettings, RetentionSettings
from muster.settings.connection_lookup import Connections
from muster.settings.connection_parsing import ConnectionSettingsError, MissingConnectionError

log = logging.getLogger(__name__)

T = TypeVar("T")
_Job = Callable[[], Iterator[Check]]
_Named = tuple[str, _Job]
"""The name of a part, and its checks."""


def examine(cluster: ClusterSettings, connections: Connections, timeout: float) -> list[Check]:
    """Check all that the cluster needs. No single call to a server takes longer than `timeout` seconds."""
    checks = list(check_settings(Part("settings"), cluster))
    connections = connections.within(timeout)
    jobs = list(_jobs(cluster, connections, checks))
    with ThreadPoolExecutor(len(jobs), thread_name_prefix="doctor") as pool:
        for done in [pool.submit(_made, Part(name), job) for name, job in jobs]:
            checks += done.result()
    return checks


def check_pruning(retention: RetentionSettings, connections: Connections) -> list[Check]:
    """Check the connection through which the DAG muster_pruning deletes runs; a warning without one."""
    checks: list[Check] = []
    without = "the DAG muster_pruning deletes no runs without it"
    _find(checks, "retention.airflow", retention.airflow, connections.airflow_api, without)
    return checks


def _jobs(cluster: ClusterSettings, source: Connections, checks: list[Check]) -> Iterator[_Named]:
    """Look the connections up, which adds to `checks`; then name what is to be looked at side by side, by part.

    What has no connection is skipped.
    """
    own = cluster.consumers
    zookeeper = _find(checks, "zookeeper", cluster.zookeeper, source.zookeeper)
    consul = _find(checks, "consul", cluster.consul, source.consul)
    kafka = _find(checks, "kafka", cluster.kafka, source.kafka)
    spark = _find(checks, "spark", own.spark, source.fields)
    if spark is not None and own.state:
        checks.append(check_executors(Part("settings"), cluster, spark.host or ""))
    asks_consumers = (
        cluster.status is None or _find(checks, "status", cluster.status, source.status_pages) is not None
    )
    for other in cluster.allowed_imports.zookeeper:
        _find(checks, "allowed_imports.zookeeper", other, source.zookeeper)
    jobs_zookeeper = _find(checks, "consumers.zookeeper", own.zookeeper, source.zookeeper)
    jobs_consul = _find(checks, "consumers.consul", own.consul, source.consul)
    jobs_kafka = _find(checks, "consumers.kafka", own.kafka, source.kafka)

    def job(
        name: str, settings: object | None, check: Callable[..., Iterator[Check]], *more: object
    ) -> _Named:
        part = Part(name)
        return name, partial(_skipped, part) if settings is None else partial(check, part, settings, *more)

    yield job("zookeeper", zookeeper, check_zookeeper, cluster.name, True)
    yield job("consul", consul, check_consul, cluster, NEEDED, OVERRIDES)
    yield job("kafka", kafka, check_kafka, cluster, BROKERS if own.kafka else (*BROKERS, *GROUP))
    if own.kafka:
        yield job("kafka", jobs_kafka, check_kafka, cluster, GROUP)
    if own.zookeeper:
        yield job("consumers.zookeeper", jobs_zookeeper, check_zookeeper, cluster.name, False)
    if own.consul:
        yield job("consumers.consul", jobs_consul, check_consul, cluster, (STOP, GENERATIONS, ANSWERS), ())
    yield "airflow", partial(check_pools, Part("airflow"), cluster)
    this = None if zookeeper is None else Deployment.of(zookeeper.hosts, cluster.name)
    yield "cluster", partial(_state_checks, cluster, source, this, consul is not None, asks_consumers)


def _find(
    checks: list[Check], role: str, conn_id: str | None, read: Callable[[str], T], without: str = ""
) -> T | None:
    """Look a connection up, and note in `checks` what came of it; None if it is missing, wrong or not named.

    `without` says what does not work without the connection, where it may be missing.
    """
    if conn_id is None:
        return None
    part = Part("connections")
    try:
        found = read(conn_id)
    except ConnectionSettingsError as error:
        problem, step = explained(error)
        if without and isinstance(error, MissingConnectionError):
            checks.append(part.warning(role, f"{problem}, and {without}", step))
        else:
            checks.append(part.failed(role, problem, step))
        return None
    except Exception as error:
        # Airflow's database or a secrets backend; their messages may hold what is secret.
        log.debug("connection %s cannot be looked up", conn_id, exc_info=True)
        problem = f"{conn_id} cannot be looked up in Airflow ({type(error).__name__})"
        step = f"check that Airflow works here: airflow connections get {conn_id}"
        checks.append(part.failed(role, problem, step))
        return None
    checks.append(part.ok(role, f"{conn_id} is there and well-formed"))
    return found


def _state_checks(
    cluster: ClusterSettings,
    connections: Connections,
    this: Deployment | None,
    asks_consul: bool,
    asks_consumers: bool,
) -> Iterator[Check]:
    """Check what people decided, and the consumers, as far as the connections can be used."""
    decisions, consumers = Part("decisions"), Part("consumers")
    if not asks_consul:
        yield from (*_skipped(decisions), *_skipped(consumers))
        return
    places = (SourceName.CONSUL, SourceName.CONSUMERS) if asks_consumers else (SourceName.CONSUL,)
    reading = read_once(cluster, Sources(cluster, connections), places)
    state = ClusterState(cluster, reading, time.time())
    yield check_deployment(decisions, state, this)
    yield from check_decisions(decisions, state)
    yield from check_consumers(consumers, state) if asks_consumers else _skipped(consumers)


def _made(part: Part, job: _Job) -> list[Check]:
    """Make the checks of `job`. A fault of ours in one part must not hide what the others found."""
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
