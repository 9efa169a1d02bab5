"""The history of a cluster as far as the timeline needs it, whoever keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from muster.core.model import Move
from muster.edges.zookeeper import TopicStore


class Step(Protocol):
    """`muster.core.history.Step`."""

    @property
    def topic(self) -> str:
        """The topic."""

    @property
    def before(self) -> str:
        """The state before."""

    @property
    def after(self) -> str:
        """The state after."""

    @property
    def epoch(self) -> int:
        """The epoch that it wrote."""

    @property
    def reason(self) -> str:
        """Why."""

    @property
    def lasted(self) -> float:
        """Seconds since the topic's rebalance began."""

    @property
    def moves(self) -> Sequence[Move]:
        """Some or all of the partitions that change hands."""

    @property
    def moved(self) -> int:
        """How many do."""


class Record(Protocol):
    """`muster.core.history.Record`; `entry` is one of its `Transitions`, `Lever` and `Unreadable`."""

    @property
    def number(self) -> int:
        """Grows with time."""

    @property
    def entry(self) -> Any:
        """What it tells."""


class HistoryPage(Protocol):
    """`muster.core.history.HistoryPage`."""

    @property
    def records(self) -> Sequence[Record]:
        """Newest first."""

    @property
    def before(self) -> int | None:
        """Where the next older ones are; None at the end."""


class NoHistoryError(RuntimeError):
    """Nothing keeps a history here; the message says what to do."""


def read_history(store: TopicStore, limit: int, before: int | None) -> HistoryPage:
    """Read so many records. Raises `ZooKeeperError`, and `NoHistoryError` where none is kept."""
    read = getattr(store, "history", None)
    if read is None:
        raise NoHistoryError("this version of Muster keeps no history; bring it up to date")
    page: HistoryPage = read(limit=limit, before=before)
    return page
