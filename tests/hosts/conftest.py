"""Three hosts for all tests here, brought up once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devstack.hosts import Hosts
from tests.hosts.stack import HOSTS, LONG, HostStack
from tests.hosts.world import World


@pytest.fixture(scope="module")
def world(hosts_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with Hosts(HOSTS) as hosts:
        stack = HostStack(tmp_path_factory.mktemp("hosts").resolve(), hosts, LONG)
        with stack.up(), World(stack) as world:
            yield world
