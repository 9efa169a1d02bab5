"""Where a topic's records and its committed offsets are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A Kafka cluster, and the group in it whose offsets count."""

    bootstrap_servers: str
    group_id: str


@dataclass(frozen=True, slots=True)
class Source:
    """Where a topic's records are, where the offsets of the cluster live, and which topic it is ('': not known)."""

    bootstrap_servers: str
    group_id: str
    topic_id: str = ""

    @property
    def place(self) -> Place:
        """The Kafka cluster and the group."""
        return Place(self.bootstrap_servers, self.group_id)
