"""The servers of a cluster: a connection that fails is looked up again, so that a corrected one takes effect."""

from __future__ import annotations

import pytest

from muster.cluster.sources import Sources
from muster.edges.consul import ConsulError
from tests.support.runs import cluster


def test_servers_take_a_corrected_connection_to_consul_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = Sources(cluster({}))
    for port in (1, 2):
        monkeypatch.setenv("AIRFLOW_CONN_MUSTER_CONSUL", f"http://127.0.0.1:{port}")
        with pytest.raises(ConsulError, match=f"127.0.0.1:{port}"):
            sources.members()
        assert sources.addresses()["consul"] == f"http://127.0.0.1:{port}"
    sources.close()
