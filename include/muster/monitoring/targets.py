"""The consumers' status pages as Prometheus's HTTP service discovery (`http_sd_configs`) wants them.

Debian's Prometheus, for one, is built without the discovery of Consul; and here the label `cluster_name` comes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.cluster.state import ClusterState


class TargetsUnknownError(RuntimeError):
    """Consul could not be asked for all clusters, so Prometheus is to go on with the targets that it has."""


def targets(states: Mapping[str, ClusterState]) -> list[dict[str, Any]]:
    """One group a consumer that is registered, live or not, with the labels `cluster_name` and `consumer_id`.

    Raises `TargetsUnknownError` if Consul could not be read for a cluster, or its answer is not to be trusted.
    """
    groups = []
    for name, state in sorted(states.items()):
        if state.membership is None:
            why = state.reading.consul.why or state.doubt
            raise TargetsUnknownError(
                f"cluster {name}, Consul service {state.settings.consul_service}: {why}"
            )
        for consumer, page in sorted(state.registered.items()):
            if page.address and page.port:
                host = f"[{page.address}]" if ":" in page.address else page.address
                labels = {"cluster_name": name, "consumer_id": consumer}
                groups.append({"targets": [f"{host}:{page.port}"], "labels": labels})
    return groups
