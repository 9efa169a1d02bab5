"""Namespace and partition of Consul Enterprise. The open edition refuses them, which shows that they are sent."""

from __future__ import annotations

import pytest

from muster.edges.consul import ConsulCluster
from muster.edges.consul_api import ConsulError
from muster.settings.connections import ConsulSettings


@pytest.mark.parametrize("key", ["namespace", "partition"])
def test_real_consul_is_given_namespace_and_partition(consul: ConsulSettings, key: str) -> None:
    elsewhere = consul.model_copy(update={key: "team"})
    catalog = ConsulCluster(elsewhere, "c", "c").catalog
    for call in (
        catalog.members,
        lambda: catalog.own_registration("one"),
        lambda: catalog.register("one", "h", 1, {}, "http://h/health", 1.0, 60.0),
        lambda: catalog.deregister("one"),
        lambda: ConsulCluster(elsewhere, "c", "c").overrides.isolate("one", "ann", "why", 1.0),
    ):
        with pytest.raises(ConsulError, match="Enterprise feature"):
            call()
