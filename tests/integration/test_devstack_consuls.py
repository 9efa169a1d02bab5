"""Three servers of Consul on hosts of their own: how many more may fail, which a fault on one of them changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.consuls import Consuls
from devstack.hosts import Hosts
from tests.conftest import Eventually
from tests.support.only_long import only_long


@pytest.fixture
def hosts(hosts_possible: None) -> Iterator[Hosts]:
    with Hosts(3) as made:
        yield made


@only_long
def test_failure_tolerance_returns_after_a_server_has_rejoined(
    hosts: Hosts, tmp_path: Path, eventually: Eventually
) -> None:
    consuls = Consuls(tmp_path, [host.place for host in hosts])
    consuls.start()
    try:
        eventually(lambda: consuls.failure_tolerance() == 1, timeout=60.0)
        with hosts.off(hosts[2]):
            eventually(lambda: consuls.failure_tolerance() == 0, timeout=60.0)
        consuls.rejoin()
        eventually(lambda: consuls.failure_tolerance() == 1, timeout=60.0)
    finally:
        for agent in consuls:
            agent.kill()
