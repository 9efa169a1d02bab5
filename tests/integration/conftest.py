"""Fixtures that several of these tests share."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from kazoo.client import KazooClient

from muster.edges.zookeeper import make_client, start_client, stop_client
from muster.settings.connections import ZooKeeperSettings
from tests.support.http_pages import Page, Pages


@pytest.fixture
def cluster() -> str:
    """The name of a cluster that no other test uses."""
    return f"c{uuid4().hex[:12]}"


@pytest.fixture
def raw(zookeeper: ZooKeeperSettings) -> Iterator[KazooClient]:
    """A client that reads and writes nodes without the store."""
    client = make_client(zookeeper)
    start_client(client, zookeeper)
    yield client
    stop_client(client, 5.0)


@pytest.fixture
def page() -> Iterator[Pages]:
    """A page whose check passes."""
    with Pages(lambda _: Page(b"ok")) as served:
        yield served
