"""Part what was read from ZooKeeper into snapshots and unreadable topics."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.model import TopicSnapshot
from muster.core.wire import WireError


def readable(
    read: Mapping[str, TopicSnapshot | WireError],
) -> tuple[dict[str, TopicSnapshot], dict[str, str]]:
    """Return the snapshots, and the unreadable topics with the reason: they stay as they are; others go on."""
    snapshots = {topic: found for topic, found in read.items() if isinstance(found, TopicSnapshot)}
    return snapshots, {topic: str(found) for topic, found in read.items() if isinstance(found, WireError)}
