"""All nodes of a ZooKeeper, to tell that nothing was written."""

from __future__ import annotations

from collections.abc import Container

from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

ANSWERED = 30.0
"""Seconds that ZooKeeper has for an answer."""


def whole_tree(client: KazooClient, without: Container[str] = ()) -> dict[str, tuple[bytes, ZnodeStat]]:
    """Read every node but those `without`, and what is below them.

    The tree has the nodes of every test before, so all nodes of a level are asked for at once.
    """
    nodes: dict[str, tuple[bytes, ZnodeStat]] = {}
    client.sync("/")
    level = ["/"]
    while level:
        answers = [(path, client.get_async(path), client.get_children_async(path)) for path in level]
        level = []
        for path, held, below in answers:
            nodes[path] = held.get(timeout=ANSWERED)
            children = (f"{path.rstrip('/')}/{child}" for child in below.get(timeout=ANSWERED))
            level += [child for child in children if child != "/zookeeper" and child not in without]
    return nodes
