"""The consumers' status pages as Prometheus's HTTP service discovery (`http_sd_configs`) wants them.

Debian's Prometheus, for one, is built without the discovery of Consul; and here the label `cluster_name` comes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.monitoring.reading import ClusterReading
from muster.settings.clusters import ClusterSettings


class TargetsUnknownError(RuntimeError):
    """Consul could not be asked for all clusters, so Prometheus is to go on with the targets that it has."""


def targets(readings: Mapping[str, tuple[ClusterSettings, ClusterReading]]) -> list[dict[str, Any]]:
    """One group a consumer that is registered, live or not, with the labels `cluster_name` and `consumer_id`.

    Raises `TargetsUnknownError` if Consul could not be read for a cluster, or its answer is not to be trusted.
    """
    groups = []
    for name, (settings, reading) in sorted(readings.items()):
        consumers = reading.consumers
        if consumers is None or consumers.membership is None:
            why = consumers.doubt if consumers is not None else _errors(reading)
            raise TargetsUnknownError(f"cluster {name}, Consul service {settings.consul_service}: {why}")
        for consumer, page in sorted(consumers.registered.items()):
            if page.address and page.port:
                host = f"[{page.address}]" if ":" in page.address else page.address
                labels = {"cluster_name": name, "consumer_id": consumer}
                groups.append({"targets": [f"{host}:{page.port}"], "labels": labels})
    return groups


def _errors(reading: ClusterReading) -> str:
    return "; ".join(read.error for read in reading.places.values() if read.error)
